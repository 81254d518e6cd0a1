package adoption_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/examples/adoption"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type subscription = func(workflow.Context, string) error

// service is a task queue whose worker is deployed several times.
type service struct {
	client client.Client
	queue  string
	plugin sdkworker.Plugin

	mu  sync.Mutex
	did []string
}

func setup(t *testing.T) *service {
	t.Helper()
	locker, err := lockcore.New(testenv.Mongo(t).Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	return &service{client: testenv.Temporal(t), queue: testenv.TaskQueue(t), plugin: plugin}
}

// deploy runs a version of the workflow until stop is called.
func (s *service) deploy(t *testing.T, version subscription, plugins ...sdkworker.Plugin) (stop func()) {
	t.Helper()
	w := sdkworker.New(s.client, s.queue, sdkworker.Options{Plugins: plugins})
	w.RegisterWorkflowWithOptions(version, workflow.RegisterOptions{Name: adoption.Name})
	w.RegisterActivity(&adoption.Accounts{Did: func(step string, locked bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.did = append(s.did, fmt.Sprintf("%s, locked: %t", step, locked))
	}})
	require.NoError(t, w.Start())
	var once sync.Once
	stop = func() { once.Do(w.Stop) }
	t.Cleanup(stop)
	return stop
}

// start starts a subscription, and returns when it waits for its renewal.
func (s *service) start(t *testing.T) client.WorkflowRun {
	t.Helper()
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: s.queue}, adoption.Name, "ada")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for _, e := range s.history(t, run).GetEvents() {
			if e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
				return true
			}
		}
		return false
	}, 2*time.Minute, 20*time.Millisecond, "the account was not opened")
	return run
}

func (s *service) history(t *testing.T, run client.WorkflowRun) *historypb.History {
	t.Helper()
	history := &historypb.History{}
	for iter := s.client.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); iter.HasNext(); {
		event, err := iter.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
	}
	return history
}

func (s *service) renew(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.NoError(t, s.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), adoption.Renewed, nil))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, run.Get(ctx, nil))
}

func replay(t *testing.T, version subscription, history *historypb.History) error {
	t.Helper()
	replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		Plugins:                  []sdkworker.Plugin{worker.NewReplayPlugin()},
		DisableDeadlockDetection: true, // a busy machine may take longer than its limit of a second
	})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(version, workflow.RegisterOptions{Name: adoption.Name})
	return replayer.ReplayWorkflowHistory(nil, history)
}

// Each deployment starts one subscription. The last deployment renews all of them.
func TestDeployments_WorkflowsInFlight_Continue(t *testing.T) {
	t.Parallel()
	s := setup(t)
	stop := s.deploy(t, adoption.Before)
	first := s.start(t)
	stop()

	stop = s.deploy(t, adoption.Before, s.plugin) // the plugin alone
	second := s.start(t)
	stop()

	stop = s.deploy(t, adoption.Guarded, s.plugin)
	third := s.start(t)
	stop()

	inFlight := []client.WorkflowRun{first, second, third}
	for _, run := range inFlight { // the check before a deployment
		require.NoError(t, replay(t, adoption.Isolated, s.history(t, run)))
	}
	s.deploy(t, adoption.Isolated, s.plugin)
	for _, run := range inFlight {
		s.renew(t, run)
		require.NoError(t, replay(t, adoption.Isolated, s.history(t, run)))
	}
	s.renew(t, s.start(t))
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, []string{
		"Open, locked: false", "Open, locked: false", "Open, locked: true", // before, plugin alone, guarded
		"Charge, locked: false", "Charge, locked: false", "Charge, locked: true",
		"Open, locked: true", "Charge, locked: true", // isolated
	}, s.did)
}

// A saga that commits adds no event. Only a run that fails needs GetVersion: its compensations are new.
func TestSaga_RunThatSucceeds_ReplaysWithoutGetVersion(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.deploy(t, adoption.Before, s.plugin)
	run := s.start(t)
	s.renew(t, run)
	history := s.history(t, run)
	require.NoError(t, replay(t, adoption.Isolated, history))
	require.NoError(t, replay(t, adoption.Saga, history))
}
