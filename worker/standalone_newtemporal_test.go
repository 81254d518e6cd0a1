//go:build newtemporal

package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// startAlone starts an activity without a workflow, of type Look. Servers from 1.31 on have such activities.
func (b *bundle) startAlone(t *testing.T, id string, change ...func(*client.StartActivityOptions)) client.ActivityHandle {
	t.Helper()
	o := client.StartActivityOptions{ID: id + b.queue, TaskQueue: b.queue, StartToCloseTimeout: time.Minute}
	for _, c := range change {
		c(&o)
	}
	handle, err := b.client.ExecuteActivity(t.Context(), o, "Look", payment{account.Name})
	require.NoError(t, err)
	return handle
}

func retried(p temporal.RetryPolicy) func(*client.StartActivityOptions) {
	return func(o *client.StartActivityOptions) { o.RetryPolicy = &p }
}

// aloneSucceed waits until activities without a workflow have succeeded.
func aloneSucceed(t *testing.T, handles ...client.ActivityHandle) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for _, h := range handles {
		require.NoError(t, h.Get(ctx, nil), h.GetID())
	}
}

// untilAlone waits until Temporal describes an activity without a workflow as the test wants it.
func untilAlone(t *testing.T, h client.ActivityHandle, is func(*client.ActivityExecutionDescription) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := h.Describe(t.Context(), client.DescribeActivityOptions{})
		return err == nil && is(d)
	}, within, lookEvery, "the activity is not in the state that the test waits for")
}

func isInBackOff(d *client.ActivityExecutionDescription) bool {
	return d.RunState == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && d.Attempt > 1
}

func isPaused(d *client.ActivityExecutionDescription) bool {
	return d.RunState == enumspb.PENDING_ACTIVITY_STATE_PAUSED
}

func (b *bundle) resetAlone(t *testing.T, h client.ActivityHandle) {
	t.Helper()
	_, err := b.client.WorkflowService().ResetActivityExecution(t.Context(), &workflowservice.ResetActivityExecutionRequest{
		Namespace: client.DefaultNamespace, ActivityId: h.GetID(), RunId: h.GetRunID(), Identity: "test",
	})
	require.NoError(t, err)
}

// attemptOf names the activity, without the test's queue, and the attempt.
func (b *bundle) attemptOf(ctx context.Context) string {
	info := activity.GetInfo(ctx)
	return fmt.Sprintf("%s %d", strings.TrimSuffix(info.ActivityID, b.queue), info.Attempt)
}

// lookAlone serves the type Look by fn.
func (b *bundle) lookAlone(t *testing.T, fn func(ctx context.Context) error) {
	t.Helper()
	b.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{"Look": func(ctx context.Context, _ payment) error { return fn(ctx) }})
}

// Busy attempts keep their positions.
func TestStandalone_ExclusiveRule_OneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	b.lookAlone(t, func(ctx context.Context) error {
		name := strings.TrimSuffix(activity.GetInfo(ctx).ActivityID, b.queue)
		b.write("%s begins", name)
		err := b.look(ctx)
		b.write("%s ends", name)
		return err
	})
	other := b.taken(t, account)
	var handles []client.ActivityHandle
	for n, id := range []string{"a", "b", "c"} {
		handles = append(handles, b.startAlone(t, id))
		b.untilQueued(t, account.Name, n+1)
	}
	for _, h := range handles {
		untilAlone(t, h, isInBackOff)
	}
	require.NoError(t, other.Leave(t.Context()))
	aloneSucceed(t, handles...)
	require.Equal(t, []string{
		"a begins", "free: false", "a ends", "b begins", "free: false", "b ends", "c begins", "free: false", "c ends",
	}, b.read())
	b.requireFree(t, account.Name)
}

func TestStandalone_Semaphore_LimitRunTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, worker.RuleFor("Look", func(p payment) []lockcore.Resource {
		return []lockcore.Resource{lockcore.SharedLimit(p.Account, 2)}
	}))
	goes := make(chan struct{})
	b.lookAlone(t, func(context.Context) error {
		b.write("began")
		<-goes
		return nil
	})
	handles := []client.ActivityHandle{b.startAlone(t, "a"), b.startAlone(t, "b")}
	b.untilWritten(t, 2)
	handles = append(handles, b.startAlone(t, "c"))
	untilAlone(t, handles[2], isInBackOff)
	b.untilQueued(t, account.Name, 1)
	require.Len(t, b.read(), 2)
	close(goes)
	aloneSucceed(t, handles...)
	require.Len(t, b.read(), 3)
	b.requireFree(t, account.Name)
}

// Two run on a phone each, and the third one waits for one.
func TestStandalone_Pool_EachHasAMember(t *testing.T) {
	t.Parallel()
	b := setup(t, worker.RuleFor("Look", func(payment) []lockcore.Resource { return []lockcore.Resource{phones} }))
	b.pool(t, "one", "two")
	goes := make(chan struct{})
	b.lookAlone(t, func(ctx context.Context) error {
		member, _ := activities.Member(ctx, phones.Name)
		b.write("%s", member)
		<-goes
		return nil
	})
	handles := []client.ActivityHandle{b.startAlone(t, "a"), b.startAlone(t, "b")}
	b.untilWritten(t, 2)
	require.ElementsMatch(t, []string{"one", "two"}, b.read())
	handles = append(handles, b.startAlone(t, "c"))
	untilAlone(t, handles[2], isInBackOff)
	b.untilQueued(t, phones.Name, 1)
	close(goes)
	aloneSucceed(t, handles...)
	require.Len(t, b.read(), 3)
	b.untilReturned(t)
}

// The first attempt sends no heartbeat and outlives its timeout. The next one has the lock, even if it has the same number after a reset, and the first
// one learns that from its lease.
func TestStandalone_AttemptTimedOut_NextTakesOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause time.Duration
		want  []string
	}{
		"retry": {time.Millisecond, []string{"a 1", "a 2"}},
		"reset": {time.Hour, []string{"a 1", "a 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupWith(t, lockcore.Config{TTL: 3 * time.Second}, payments())
			late, fences := make(chan error, 1), make(chan int64, 2)
			b.lookAlone(t, func(ctx context.Context) error {
				fence, _ := activities.Fence(ctx, account.Name)
				fences <- fence
				if b.write("%s", b.attemptOf(ctx)); len(b.read()) > 1 {
					return nil
				}
				<-ctx.Done()
				late <- context.Cause(ctx)
				return nil
			})
			h := b.startAlone(t, "a", retried(temporal.RetryPolicy{InitialInterval: c.pause}), func(o *client.StartActivityOptions) {
				o.HeartbeatTimeout = 3 * time.Second
			})
			if name == "reset" {
				untilAlone(t, h, isInBackOff)
				b.resetAlone(t, h)
			}
			aloneSucceed(t, h)
			require.ErrorIs(t, <-late, lockcore.ErrLost)
			require.Equal(t, c.want, b.read())
			first, second := <-fences, <-fences
			require.Greater(t, second, first)
			b.requireFree(t, account.Name)
		})
	}
}

// A reset restarts the attempts at 1. None is refused because of an earlier attempt with a greater number, so the activity has all the attempts
// that its retry policy allows.
func TestStandalone_Reset_UsesNoAttemptUp(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	free := make(chan bool, 4)
	b.lookAlone(t, func(ctx context.Context) error {
		b.write("%s", b.attemptOf(ctx))
		switch len(b.read()) {
		case 1:
			return temporal.NewApplicationErrorWithOptions("fails", "Test", temporal.ApplicationErrorOptions{NextRetryDelay: time.Millisecond})
		case 2:
			return temporal.NewApplicationErrorWithOptions("fails", "Test", temporal.ApplicationErrorOptions{NextRetryDelay: time.Hour})
		}
		isFree, err := b.isFree(ctx, account.Name)
		free <- isFree
		return err
	})
	h := b.startAlone(t, "a", retried(temporal.RetryPolicy{MaximumAttempts: 3}))
	b.untilWritten(t, 2)
	untilAlone(t, h, isInBackOff)
	b.requireFree(t, account.Name) // a failed attempt leaves
	b.resetAlone(t, h)
	aloneSucceed(t, h)
	require.Equal(t, []string{"a 1", "a 2", "a 1"}, b.read())
	require.False(t, <-free)
	b.requireFree(t, account.Name)
}

// The claim of a paused activity lapses, so others do not wait for it.
func TestStandalone_PausedWhileItWaits_OthersPass(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{ClaimTTL: time.Second}, payments())
	b.lookAlone(t, func(ctx context.Context) error {
		b.write("%s", strings.Fields(b.attemptOf(ctx))[0])
		return nil
	})
	other := b.taken(t, account)
	first := b.startAlone(t, "first")
	b.untilQueued(t, account.Name, 1)
	require.NoError(t, first.Pause(t.Context(), client.PauseActivityOptions{}))
	untilAlone(t, first, isPaused)
	second := b.startAlone(t, "second")
	b.untilQueued(t, account.Name, 2)
	require.NoError(t, other.Leave(t.Context()))
	aloneSucceed(t, second)
	require.NoError(t, first.Unpause(t.Context(), client.UnpauseActivityOptions{}))
	aloneSucceed(t, first)
	require.Equal(t, []string{"second", "first"}, b.read())
	b.requireFree(t, account.Name)
}

func TestStandalone_PausedWhileItRuns_LeavesItsLock(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	b.lookAlone(t, func(ctx context.Context) error {
		if b.write("%s", b.attemptOf(ctx)); len(b.read()) > 1 {
			return nil
		}
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(100 * time.Millisecond):
				activity.RecordHeartbeat(ctx)
			}
		}
	})
	h := b.startAlone(t, "a", func(o *client.StartActivityOptions) { o.HeartbeatTimeout = 2 * time.Second })
	b.untilWritten(t, 1)
	require.NoError(t, h.Pause(t.Context(), client.PauseActivityOptions{}))
	untilAlone(t, h, isPaused)
	b.requireFree(t, account.Name)
	require.NoError(t, h.Unpause(t.Context(), client.UnpauseActivityOptions{}))
	aloneSucceed(t, h)
	require.Len(t, b.read(), 2)
	b.requireFree(t, account.Name)
}

// Each run with an ID is a party of its own: the second run waits for a late attempt of the first one, and is not refused because of it.
func TestStandalone_IDUsedAgain_IsAnotherOwner(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	goes := make(chan struct{})
	b.lookAlone(t, func(ctx context.Context) error {
		b.write("%s", activity.GetInfo(ctx).ActivityRunID)
		if len(b.read()) == 2 {
			<-goes // it does not notice that it was terminated
		}
		return nil
	})
	first := b.startAlone(t, "a")
	aloneSucceed(t, first)
	second := b.startAlone(t, "a")
	b.untilWritten(t, 2)
	require.NoError(t, second.Terminate(t.Context(), client.TerminateActivityOptions{}))
	third := b.startAlone(t, "a")
	b.untilQueued(t, account.Name, 1)
	require.Equal(t, []string{b.lockIDAlone(second)}, b.holders(t, account.Name))
	require.Equal(t, []string{b.lockIDAlone(third)}, b.waiters(t, account.Name))
	close(goes)
	aloneSucceed(t, third)
	require.Equal(t, []string{first.GetRunID(), second.GetRunID(), third.GetRunID()}, b.read())
	b.requireFree(t, account.Name)
}

func (b *bundle) lockIDAlone(h client.ActivityHandle) string {
	return wire.Standalone{Namespace: namespaceID, ActivityID: h.GetID(), ActivityType: "Look", RunID: h.GetRunID()}.LockID()
}

// The last attempt leaves the queue, and an activity that is cancelled in back-off is passed over.
func TestStandalone_EndsWhileItWaits_BlocksNobody(t *testing.T) {
	t.Parallel()
	b := setupWith(t, lockcore.Config{ClaimTTL: time.Second}, payments())
	b.lookAlone(t, func(ctx context.Context) error {
		b.write("%s", b.attemptOf(ctx))
		return nil
	})
	other := b.taken(t, account)
	once := b.startAlone(t, "once", retried(temporal.RetryPolicy{MaximumAttempts: 1}))
	var failed *temporal.ApplicationError
	require.ErrorAs(t, once.Get(t.Context(), nil), &failed)
	require.Equal(t, wire.FailureBusy, failed.Type())
	b.untilQueued(t, account.Name, 0)
	cancelled := b.startAlone(t, "cancelled")
	untilAlone(t, cancelled, isInBackOff)
	b.untilQueued(t, account.Name, 1)
	require.NoError(t, cancelled.Terminate(t.Context(), client.TerminateActivityOptions{}))
	last := b.startAlone(t, "last")
	b.untilQueued(t, account.Name, 2)
	require.NoError(t, other.Leave(t.Context()))
	aloneSucceed(t, last)
	require.Len(t, b.read(), 1)
}

// The rule takes longer than any attempt should, so the worker asks whether this one is still pending.
func TestStandalone_SlowRule_AsksTemporal(t *testing.T) {
	t.Parallel()
	b := setup(t, worker.RuleFor("Look", func(p payment) []lockcore.Resource {
		<-time.After(11 * time.Second)
		return []lockcore.Resource{lockcore.Exclusive(p.Account)}
	}))
	b.lookAlone(t, func(ctx context.Context) error {
		b.write("%s", b.attemptOf(ctx))
		return nil
	})
	aloneSucceed(t, b.startAlone(t, "a"))
	require.Equal(t, []string{"a 1"}, b.read())
}

func TestStandalone_Why_NamesTheActivity(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	goes := make(chan struct{})
	b.lookAlone(t, func(ctx context.Context) error {
		b.write("%s", b.attemptOf(ctx))
		<-goes
		return nil
	})
	holder := b.startAlone(t, "holder ")
	b.untilWritten(t, 1)
	waiter := b.startAlone(t, "waiter ")
	b.untilQueued(t, account.Name, 1)
	site := inspect.Site{Locker: b.locker, Temporal: inspect.Temporal{Service: b.client.WorkflowService(), Namespace: client.DefaultNamespace, NamespaceID: namespaceID}}
	why, err := site.Why(t.Context(), waiter.GetID())
	require.NoError(t, err)
	require.Equal(t, "activity "+waiter.GetID()+" of type Look", why.Party.Name)
	require.Len(t, why.Roots, 1)
	require.Equal(t, "activity "+holder.GetID()+" of type Look", why.Roots[0].Party.Name)
	require.Contains(t, why.Roots[0].Advice, "an activity without a workflow")
	require.Contains(t, why.Roots[0].Advice, "--activity-id '"+holder.GetID()+"' --run-id "+holder.GetRunID())
	close(goes)
	aloneSucceed(t, holder, waiter)
	b.requireFree(t, account.Name)
}

// A forced release ends the running attempt, which fails as with any rule.
func TestStandalone_ForcedRelease_AttemptIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t, payments())
	b.lookAlone(t, func(ctx context.Context) error {
		b.write("%s", b.attemptOf(ctx))
		<-ctx.Done()
		return nil
	})
	h := b.startAlone(t, "a")
	b.untilWritten(t, 1)
	release := lockcore.Release{LockID: b.lockIDAlone(h), Resources: []string{account.Name}, Force: true, Reason: "the test wants it"}
	for s, err := range b.locker.Status(t.Context(), lockcore.Filter{Resource: account.Name}) {
		require.NoError(t, err)
		release.FirstFence = s.FirstFence
	}
	require.NoError(t, b.locker.Release(t.Context(), release))
	var failed *temporal.ApplicationError
	require.ErrorAs(t, h.Get(t.Context(), nil), &failed)
	require.Equal(t, wire.FailureLost, failed.Type())
	b.requireFree(t, account.Name)
}
