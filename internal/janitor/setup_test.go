package janitor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// world is the fixture of tests in virtual time: a Locker on an in-memory store, and answers about runs.
type world struct {
	*lockcore.Steps
	mu      sync.Mutex
	answers map[string]answer // by workflow ID and run
	err     error
	// before, unless nil, is called before each answer.
	before  func()
	asked   []string
	at      []time.Time
	wakes   []lockcore.Wakeup
	results []Result
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
		require.NoError(t, err)
		w := &world{Steps: l.Steps(), answers: map[string]answer{}}
		l.Steps().OnWakeup(func(turn lockcore.Wakeup) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.wakes = append(w.wakes, turn)
		})
		t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
		test(t, w)
	})
}

func (w *world) ask(_ context.Context, workflowID, run string) (answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.before != nil {
		w.before()
	}
	w.asked, w.at = append(w.asked, workflowID+"/"+run), append(w.at, time.Now())
	if w.err != nil {
		return answer{}, w.err
	}
	return w.answers[workflowID+"/"+run], nil
}

func (w *world) is(run string, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[run] = a
}

func (w *world) options() Options {
	return Options{
		Locker: w.Steps, Temporal: refusing{}, Namespace: "name", NamespaceID: "ns", Logger: logger(),
		OnRound: func(r Result) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.results = append(w.results, r)
		},
	}
}

func (w *world) janitor(t *testing.T, changes ...func(*Options)) *Janitor {
	t.Helper()
	o := w.options()
	for _, change := range changes {
		change(&o)
	}
	j := New(o)
	j.ask = w.ask
	return j
}

func (w *world) round(t *testing.T, j *Janitor) Result {
	t.Helper()
	result, err := j.Round(t.Context())
	require.NoError(t, err)
	return result
}

// keeps gives a run a kept hold, as between two steps of a saga.
func (w *world) keeps(t *testing.T, lockID, run, resource string, holdTTL time.Duration) {
	t.Helper()
	leases, err := w.TryEnter(t.Context(), request(lockID, run, resource, holdTTL))
	require.NoError(t, err)
	require.NoError(t, w.Leave(t.Context(), leases...))
}

// waits queues a request of a run that no process waits for.
func (w *world) waits(t *testing.T, lockID, run, resource string) {
	t.Helper()
	_, err := w.Enter(t.Context(), request(lockID, run, resource, time.Hour))
	require.ErrorIs(t, err, lockcore.ErrBusy)
}

func request(lockID, run, resource string, holdTTL time.Duration) lockcore.StepRequest {
	return lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: lockID, Run: run, Part: run + "/1", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Keep: true, HoldTTL: holdTTL, TTL: min(holdTTL, time.Minute),
		Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
	}
}

// on lists the entries of a resource, as lock ID and state.
func (w *world) on(t *testing.T, resource string) (found []string) {
	t.Helper()
	for s, err := range w.Status(t.Context(), lockcore.Filter{Resource: resource}) {
		require.NoError(t, err)
		if s.ExpiresIn > 0 {
			found = append(found, s.LockID+" "+string(s.State))
		}
	}
	return found
}

// rounds returns the results so far.
func (w *world) rounds() []Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.results)
}

// run runs a janitor until the returned function has ended it.
func run(t *testing.T, j *Janitor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func logger() sdklog.Logger { return sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)) }

// refusing is a Temporal service that refuses every question.
type refusing struct{}

func (refusing) DescribeWorkflowExecution(
	context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewPermissionDenied("no", "")
}

func (refusing) GetWorkflowExecutionHistory(
	context.Context, *workflowservice.GetWorkflowExecutionHistoryRequest, ...grpc.CallOption,
) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	return nil, serviceerror.NewPermissionDenied("no", "")
}
