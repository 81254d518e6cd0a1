package interceptors

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/activity/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/workflows"
)

func half(most time.Duration) time.Duration { return most / 2 }

func all(most time.Duration) time.Duration { return most - 1 }

func TestRetryDelay_Position_GrowsFromTheHead(t *testing.T) {
	t.Parallel()
	for attempt := int32(1); attempt < 20; attempt++ {
		before := time.Duration(0)
		for position := 1; position < 100; position++ {
			pause := retryDelay(&lockcore.BusyError{Position: position}, activity.Info{Attempt: attempt}, half)
			require.Positive(t, pause)
			require.LessOrEqual(t, pause, longestPause)
			require.GreaterOrEqual(t, pause, before)
			before = pause
		}
	}
	full := retryDelay(&lockcore.BusyError{Full: true, Waiting: 2000}, activity.Info{Attempt: 1}, all)
	require.Equal(t, longestPause, full)
}

// A pause beyond the time that the activity has left would fail it at once.
func TestRetryDelay_ActivityTimeout_IsNotExceeded(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for _, ran := range []time.Duration{0, time.Second, 9 * time.Second, 10*time.Second - 1} {
		info := activity.Info{Attempt: 30, ScheduleToCloseTimeout: 10 * time.Second, ScheduledTime: began, StartedTime: began.Add(ran)}
		pause := retryDelay(&lockcore.BusyError{Position: 50}, info, all)
		require.LessOrEqual(t, pause, max(time.Millisecond, 10*time.Second-ran))
	}
}

func TestCannotWait_PolicyWithoutRetries_SaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		info activity.Info
		why  string
	}{
		"no policy":     {activity.Info{Attempt: 7}, ""},
		"any number":    {activity.Info{Attempt: 7, RetryPolicy: &temporal.RetryPolicy{}}, ""},
		"one attempt":   {activity.Info{Attempt: 1, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}, "MaximumAttempts: 1"},
		"not the last":  {activity.Info{Attempt: 2, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 3}}, ""},
		"the last":      {activity.Info{Attempt: 3, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 3}}, "MaximumAttempts: 3"},
		"not retryable": {activity.Info{Attempt: 1, RetryPolicy: &temporal.RetryPolicy{NonRetryableErrorTypes: []string{wire.FailureBusy}}}, "lockstep.Busy"},
		"short timeout": {activity.Info{Attempt: 1, ScheduleToCloseTimeout: 19 * time.Second}, "ScheduleToCloseTimeout is 19s"},
		"long timeout":  {activity.Info{Attempt: 1, ScheduleToCloseTimeout: time.Minute}, ""},
	} {
		why := cannotWait(c.info)
		require.Equal(t, c.why == "", why == "", name)
		require.Contains(t, why, c.why, name)
	}
}

// There is one warning for each activity type.
func TestEnterRule_StepCannotWait_WarnsOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scheduleToClose time.Duration
		warning         string
	}{
		"it cannot wait": {time.Second, "ScheduleToCloseTimeout is 1s"},
		"it can":         {time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker, logs := &fakeLocker{}, &strings.Builder{}
			locker.enter = func(_ context.Context, n int, req lockcore.StepRequest) error {
				if n < 2 {
					return &lockcore.BusyError{Resource: "r", LockID: req.LockID, Position: 1}
				}
				return nil
			}
			i := with(locker)
			i.rules = map[string]Rule{"Do": {Activity: "Do", Resources: func([]any) ([]lockcore.Resource, error) {
				return resources(lockcore.Exclusive("r")), nil
			}}}
			suite := &testsuite.WorkflowTestSuite{}
			suite.SetLogger(log.NewStructuredLogger(slog.New(slog.NewTextHandler(logs, nil))))
			env := suite.NewTestWorkflowEnvironment()
			env.SetWorkerOptions(sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{i}})
			env.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "Do"})
			env.ExecuteWorkflow(func(ctx workflow.Context) error {
				ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
					StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: c.scheduleToClose,
				})
				for range 3 {
					_ = workflow.ExecuteActivity(ctx, "Do").Get(ctx, nil)
				}
				return nil
			})
			require.NoError(t, env.GetWorkflowError())
			require.GreaterOrEqual(t, len(locker.asked()), 3)
			warnings := 0
			if c.warning != "" {
				warnings = 1
			}
			require.Equal(t, warnings, strings.Count(logs.String(), "cannot wait"), logs.String())
			require.Contains(t, logs.String(), c.warning)
		})
	}
}

// The workflow passes three facts to a rule: its owner, the saga of a step that may be barred, and that a compensation must not become
// a deadlock's victim.
func TestEnterRule_FactsOfTheWorkflow_AreInTheRequest(t *testing.T) {
	t.Parallel()
	locker := &fakeLocker{}
	i := with(locker)
	i.rules = map[string]Rule{"Debit": {Activity: "Debit", Resources: func([]any) ([]lockcore.Resource, error) {
		return resources(lockcore.Exclusive("r")), nil
	}}}
	err := runWorkflow(t, workflowEnv(t, i), &releases{}, func(ctx workflow.Context) error {
		_ = step(ctx, "Debit")
		_ = step(workflows.WithOwner(ctx, "order 7"), "Debit")
		_ = workflows.RunSaga(workflows.WithOwner(ctx, "order 7"), workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
			err := s.Compensate(ctx, func(ctx workflow.Context) error { return step(ctx, "Debit") })
			return errors.Join(err, step(ctx, "Debit"), step(workflows.Guard(ctx, account), "Debit"), errors.New("it fails"))
		})
		return nil
	})
	require.NoError(t, err)
	var byRule []lockcore.StepRequest
	for _, req := range locker.asked() {
		if req.Resources[0].Name == "r" {
			byRule = append(byRule, req)
		}
	}
	require.Len(t, byRule, 5)
	run := wire.Run{Namespace: "default-test-namespace", WorkflowID: "default-test-workflow-id"}
	for n, want := range []wire.RuleFacts{
		{Owner: wire.Owner{Name: run.Owner()}}, {Owner: wire.Owner{Name: "order 7"}},
		{Owner: wire.Owner{Name: "order 7"}, Saga: "1"}, {Owner: wire.Owner{Name: "order 7"}, Saga: "1"},
		{Owner: wire.Owner{Name: "order 7"}, NeverVictim: true},
	} {
		got := byRule[n]
		require.Equal(t, want, wire.RuleFacts{Owner: wire.Owner{Name: got.Owner}, Saga: got.Saga, NeverVictim: got.NeverVictim}, n)
		require.Equal(t, run.LockID(), got.Within)
	}
}

// An activity without a workflow is a party of its own. An attempt that starts later has the greater order, also after a reset.
func TestCallerByRule_ActivityWithoutWorkflow_IsAParty(t *testing.T) {
	t.Parallel()
	scheduled := time.Unix(1700000000, 0)
	caller := func(started time.Duration, attempt int32) lockcore.Caller {
		return callerByRule(activity.Info{
			ActivityID: "import-7", ActivityRunID: "r1", ActivityType: activity.Type{Name: "Import"}, Attempt: attempt,
			ScheduledTime: scheduled, StartedTime: scheduled.Add(started),
		}, wire.Run{Namespace: "n"})
	}
	require.Equal(t, lockcore.Caller{
		LockID: "%standalone/n/import-7/Import/r1", Run: "r1", Part: "r1/rule/Import", Order: lockcore.Order{Schedule: 1, Attempt: 1},
	}, caller(0, 1))
	require.Equal(t, lockcore.Order{Schedule: 1, Attempt: 1}, caller(-time.Second, 1).Order, "the clocks of two hosts differ")
	last := caller(0, 1)
	for _, later := range []lockcore.Caller{caller(0, 2), caller(100*time.Millisecond, 1), caller(time.Minute, 7), caller(time.Hour, 1), caller(5*365*24*time.Hour, 2)} {
		require.Positive(t, cmp.Or(cmp.Compare(later.Order.Schedule, last.Order.Schedule), cmp.Compare(later.Order.Attempt, last.Order.Attempt)))
		require.LessOrEqual(t, later.Order.Schedule, uint32(math.MaxInt32))
		last = later
	}
}

// describing is a client whose service is a describer.
type describing struct {
	client.Client
	service *describer
}

func (c describing) WorkflowService() workflowservice.WorkflowServiceClient { return c.service }

// describer answers what Temporal knows of an activity without a workflow.
type describer struct {
	workflowservice.WorkflowServiceClient
	info *activitypb.ActivityExecutionInfo
	err  error
	in   *workflowservice.DescribeActivityExecutionRequest
}

func (d *describer) DescribeActivityExecution(
	_ context.Context, in *workflowservice.DescribeActivityExecutionRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeActivityExecutionResponse, error) {
	d.in = in
	return &workflowservice.DescribeActivityExecutionResponse{Info: d.info}, d.err
}

func TestIsPending_ActivityWithoutWorkflow_AsksTemporal(t *testing.T) {
	t.Parallel()
	started := time.Unix(1700000000, 7).UTC()
	info := activity.Info{Namespace: "n", ActivityID: "import-7", ActivityRunID: "r1", Attempt: 2, StartedTime: started}
	const running, over = enumspb.ACTIVITY_EXECUTION_STATUS_RUNNING, enumspb.ACTIVITY_EXECUTION_STATUS_TIMED_OUT
	for name, c := range map[string]struct {
		status  enumspb.ActivityExecutionStatus
		attempt int32
		started time.Time
		want    bool
	}{
		"this attempt":               {running, 2, started, true},
		"a later attempt":            {running, 3, started, false},
		"the same number, reset":     {running, 2, started.Add(time.Second), false},
		"the activity has timed out": {over, 2, started, false},
	} {
		d := &describer{info: &activitypb.ActivityExecutionInfo{Status: c.status, Attempt: c.attempt, LastStartedTime: timestamppb.New(c.started)}}
		pending, err := isPending(t.Context(), describing{service: d}, info)
		require.NoError(t, err)
		require.Equal(t, c.want, pending, name)
		require.Equal(t, []string{"n", "import-7", "r1"}, []string{d.in.GetNamespace(), d.in.GetActivityId(), d.in.GetRunId()})
	}
	_, err := isPending(t.Context(), describing{service: &describer{err: errors.New("away")}}, info)
	require.EqualError(t, err, "away")
}
