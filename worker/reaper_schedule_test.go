package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

func TestTheReapersScheduleIsMadeOnceAndRuns(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	b.work(t, sdkworker.Options{}, nil)
	o := worker.ReaperOptions{TaskQueue: b.queue, Interval: 24 * time.Hour}
	t.Cleanup(func() { _ = worker.DeleteReaper(context.Background(), b.client, o) }) // where the test failed before it did
	require.NoError(t, worker.CreateReaper(t.Context(), b.client, o))
	schedule := b.client.ScheduleClient().GetHandle(t.Context(), "lockstep-reaper-"+b.queue)
	require.NoError(t, schedule.Pause(t.Context(), client.SchedulePauseOptions{Note: "mine"}))
	require.NoError(t, worker.CreateReaper(t.Context(), b.client, o))
	o.Interval = 12 * time.Hour
	require.NoError(t, worker.CreateReaper(t.Context(), b.client, o))
	d, err := schedule.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, 12*time.Hour, d.Schedule.Spec.Intervals[0].Every)
	require.Len(t, d.Schedule.Spec.Intervals, 1)
	require.Equal(t, 15*time.Minute, d.Schedule.Action.(*client.ScheduleWorkflowAction).WorkflowRunTimeout, "a stuck reap would have all others skipped")
	require.True(t, d.Schedule.State.Paused, "who has paused it wanted that")
	require.Equal(t, "mine", d.Schedule.State.Note)

	run := b.ended(t)
	b.hold(t, lockID(run), run.GetRunID(), account.Name)
	require.NoError(t, schedule.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
	require.Eventually(t, func() bool { free, err := b.isFree(t.Context(), account.Name); return err == nil && free },
		within, 50*time.Millisecond, "the schedule started no reap")

	require.NoError(t, worker.DeleteReaper(t.Context(), b.client, o))
	_, err = schedule.Describe(t.Context())
	var gone *serviceerror.NotFound
	require.ErrorAs(t, err, &gone)
	require.NoError(t, worker.DeleteReaper(t.Context(), b.client, o), "what is not there is deleted")
}

func TestTheReapersHistoryReplays(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	b.work(t, sdkworker.Options{}, nil)
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, workflows.ReapName, activities.ReapParams{})
	require.NoError(t, err)
	events, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, 11, countEvents(events))
}

func TestReaperOptionsAreChecked(t *testing.T) {
	t.Parallel()
	c := testenv.Temporal(t)
	long := strings.Repeat("q", 256)
	for name, tc := range map[string]struct {
		client  client.Client
		options worker.ReaperOptions
		field   string
	}{
		"no client":         {nil, worker.ReaperOptions{TaskQueue: "q"}, "client"},
		"no task queue":     {c, worker.ReaperOptions{}, "worker.ReaperOptions.TaskQueue"},
		"long task queue":   {c, worker.ReaperOptions{TaskQueue: long}, "worker.ReaperOptions.TaskQueue"},
		"short interval":    {c, worker.ReaperOptions{TaskQueue: "q", Interval: time.Second}, "worker.ReaperOptions.Interval"},
		"negative interval": {c, worker.ReaperOptions{TaskQueue: "q", Interval: -time.Minute}, "worker.ReaperOptions.Interval"},
		"long interval":     {c, worker.ReaperOptions{TaskQueue: "q", Interval: 25 * time.Hour}, "worker.ReaperOptions.Interval"},
		"odd interval":      {c, worker.ReaperOptions{TaskQueue: "q", Interval: 10500 * time.Millisecond}, "worker.ReaperOptions.Interval"},
		"hasty":             {c, worker.ReaperOptions{TaskQueue: "q", MissingAfter: time.Second}, "worker.ReaperOptions.MissingAfter"},
		"long ID":           {c, worker.ReaperOptions{TaskQueue: "q", ID: long}, "worker.ReaperOptions.ID"},
	} {
		_, run := worker.RunReaper(t.Context(), tc.client, tc.options)
		for _, err := range []error{worker.CreateReaper(t.Context(), tc.client, tc.options), worker.DeleteReaper(t.Context(), tc.client, tc.options), run} {
			var invalid *lockcore.InvalidError
			require.ErrorAs(t, err, &invalid, name)
			require.Equal(t, tc.field, invalid.Field, name)
		}
	}
}

func TestAWorkerWithoutWorkflowsTakesLockstepToo(t *testing.T) {
	t.Parallel()
	b := reaping(t)
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, nil)
	o := worker.Options{Locker: b.locker}
	w := sdkworker.New(b.client, b.queue, sdkworker.Options{DisableWorkflowWorker: true})
	require.NoError(t, errors.Join(worker.Register(w, o), w.Start()))
	t.Cleanup(w.Stop)
	w = sdkworker.New(b.client, b.queue, sdkworker.Options{LocalActivityWorkerOnly: true})
	worker.RegisterReaper(w)
	worker.RegisterReaper(w)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	require.Zero(t, b.reap(t))
}
