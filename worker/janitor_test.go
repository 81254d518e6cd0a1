package worker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv/tlsfront"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// often is the interval of the tests' janitors.
const often = 200 * time.Millisecond

func oftenOn(b *bundle) worker.Options {
	return worker.Options{Locker: b.locker.Locker, Janitor: worker.JanitorOptions{Interval: often}}
}

// janitored gives a bundle a plugin whose janitor works often, on the client.
func janitored(t *testing.T, b *bundle) {
	t.Helper()
	plugin, err := worker.NewPlugin(oftenOn(b))
	require.NoError(t, err)
	b.plugin = plugin
	b.client = b.dial(t, client.Options{})
}

// dial connects with the bundle's plugin.
func (b *bundle) dial(t *testing.T, o client.Options) client.Client {
	t.Helper()
	if o.HostPort == "" {
		o.HostPort = testenv.TemporalAddress(t)
	}
	o.Plugins, o.Logger = []client.Plugin{b.plugin}, log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.Dial(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// leftBehind gives a bundle the workflows of the janitor's tests: "Hold" is a saga that keeps the account forever and stays
// open, "Stay" stays open, and "End" ends.
func leftBehind(b *bundle) *bundle {
	stay := func(ctx workflow.Context) { receive(ctx, "end") }
	b.saga("Hold", func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: lockcore.Forever})
		err := do(ctx, "Note")
		stay(ctx)
		return err
	})
	b.workflow("Stay", func(ctx workflow.Context) error {
		stay(ctx)
		return nil
	})
	b.workflow("End", func(workflow.Context) error { return nil })
	return b
}

// round does a round of a janitor.
func (b *bundle) round(t *testing.T) janitor.Result {
	t.Helper()
	j := janitor.New(janitor.Options{
		Locker: b.locker, Temporal: b.client.WorkflowService(), Namespace: "default", NamespaceID: namespaceID,
		Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	result, err := j.Round(t.Context())
	require.NoError(t, err)
	return result
}

// hold makes a hold without end in the name of a run.
func (b *bundle) hold(t *testing.T, lockID, run string, resources ...string) {
	t.Helper()
	for _, name := range resources {
		leases, err := b.locker.TryEnter(t.Context(), lockcore.StepRequest{
			Caller: lockcore.Caller{LockID: lockID, Run: run, Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1}}, Resources: []lockcore.Resource{lockcore.Exclusive(name)},
			Keep: true, HoldTTL: lockcore.Forever,
		})
		require.NoError(t, err)
		require.NoError(t, b.locker.Leave(t.Context(), leases...))
	}
}

// untilOffice waits until a janitor of the tests' namespace is in office, or until none is.
func (b *bundle) untilOffice(t *testing.T, taken bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		free, err := b.isFree(t.Context(), janitor.LockName(namespaceID))
		return err == nil && free != taken
	}, within, lookEvery, "the office is not as it should be")
}

func TestJanitor_TerminatedWorkflow_LocksAreReleased(t *testing.T) {
	t.Parallel()
	b := leftBehind(setup(t))
	janitored(t, b)
	b.work(t, sdkworker.Options{}, map[string]any{"Note": b.writer("entered")})
	holder := b.start(t, "Hold")
	b.untilWritten(t, 1)
	waiter, next := b.start(t, "Hold"), b.start(t, "Hold")
	b.untilParked(t, waiter)
	b.untilParked(t, next)
	b.terminate(t, waiter)
	b.untilQueued(t, account.Name, 1)
	b.terminate(t, holder)
	b.untilWritten(t, 2)
	b.requireHolds(t, next, account)
	b.terminate(t, next)
	b.requireFree(t, account.Name)
}

// Only the janitor extends the hold, while another party requests it all the time.
func TestJanitor_OpenRun_HoldIsExtended(t *testing.T) {
	t.Parallel()
	b := setup(t)
	janitored(t, b)
	const holdTTL = 5 * time.Second // a busy machine may stall for half of it
	b.workflow("first", func(ctx workflow.Context) error {
		l := workflows.Locks{Resources: []lockcore.Resource{account}, HoldTTL: holdTTL}
		return under(ctx, l, func(*workflows.Hold) error {
			return errors.Join(say(ctx, "locked"), workflow.Sleep(ctx, 3*holdTTL), say(ctx, "done"))
		})
	})
	b.workflow("second", func(ctx workflow.Context) error {
		return under(ctx, locks(account), func(*workflows.Hold) error { return say(ctx, "second") })
	})
	b.serve(t)
	first := b.start(t, "first")
	b.untilWritten(t, 1)
	second := b.start(t, "second")
	b.untilParked(t, second)
	b.succeed(t, first)
	b.succeed(t, second)
	require.Equal(t, []string{"locked", "done", "second"}, b.read())
	b.requireFree(t, account.Name)
}

// While a saga waits for its second lock, the janitor extends the hold on the first, not the wait.
func TestJanitor_PartlyGranted_HeldPartIsExtended(t *testing.T) {
	t.Parallel()
	b := setup(t)
	janitored(t, b)
	const holdTTL = 5 * time.Second
	b.saga("W", func(ctx workflow.Context, _ *workflows.Saga) error {
		l := workflows.Locks{Resources: []lockcore.Resource{account2, account}, TTL: time.Second, HoldTTL: holdTTL}
		return do(workflows.WithLocks(ctx, l), "Nothing")
	})
	b.serve(t)
	other := b.taken(t, account2)
	run := b.start(t, "W")
	b.untilParked(t, run)
	for began, look := time.Now(), time.NewTicker(holdTTL/50); time.Since(began) < 3*holdTTL; <-look.C {
		free, err := b.isFree(t.Context(), account.Name)
		require.NoError(t, err)
		require.False(t, free)
	}
	require.NoError(t, other.Leave(t.Context()))
	b.succeed(t, run)
	b.requireFree(t, account.Name)
}

// The janitor's own connection is made as the client was, which has applied its credentials to its options already, or is that of the
// client with which it shares it. A plugin that is only on the worker starts its janitor with the first activity.
func TestJanitor_HoweverConnected_Runs(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(t *testing.T, b *bundle){
		"client with credentials": func(t *testing.T, b *bundle) {
			authority := tlsfront.NewAuthority(t)
			front := tlsfront.New(t, authority.AskingClients(t), testenv.TemporalAddress(t))
			pair := authority.Issue(t, "lockstep")
			cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
			require.NoError(t, err)
			b.client = b.dial(t, client.Options{
				HostPort: front.Address, Credentials: client.NewMTLSCredentials(cert),
				ConnectionOptions: client.ConnectionOptions{TLS: &tls.Config{RootCAs: authority.Pool(), ServerName: "127.0.0.1"}},
			})
		},
		"client that shares a connection": func(t *testing.T, b *bundle) {
			c, err := client.NewClientFromExisting(b.client, client.Options{Plugins: []client.Plugin{b.plugin}})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			b.client = c
		},
		"plugin on the worker only": func(*testing.T, *bundle) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := leftBehind(setup(t))
			plugin, err := worker.NewPlugin(oftenOn(b))
			require.NoError(t, err)
			b.plugin = plugin
			connect(t, b)
			b.serve(t)
			run := b.start(t, "Hold")
			b.untilHeldBy(t, run)
			b.terminate(t, run)
			b.requireFree(t, account.Name)
		})
	}
}

func (b *bundle) startedAndTerminated(t *testing.T) client.WorkflowRun {
	t.Helper()
	run := b.start(t, "Stay")
	b.terminate(t, run)
	return run
}

// The only worker, which has run no activity yet, releases the left holds and wakes the waiting workflows.
func TestJanitor_WorkerStarts_Runs(t *testing.T) {
	t.Parallel()
	b := leftBehind(setup(t))
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
	other := b.taken(t, account)
	w := b.serve(t)
	waits := b.start(t, "W")
	b.untilParked(t, waits)
	w.Stop()
	require.NoError(t, other.Leave(t.Context()))
	orphan := b.startedAndTerminated(t)
	b.hold(t, lockID(orphan), orphan.GetRunID(), account2.Name)

	fresh := setup(t)
	locker, err := lockcore.New(testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) }) // the database goes with the test
	fresh.locker = locker.Steps()
	janitored(t, fresh)
	fresh.serve(t)
	b.requireFree(t, account2.Name)
	b.untilEvent(t, waits, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	b.serve(t)
	b.succeed(t, waits)
}

// It ends with the last worker, and works again with the next.
func TestJanitor_LastWorkerStops_Stops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	janitored(t, b)
	first := b.serve(t)
	last := b.serve(t)
	b.untilOffice(t, true)
	first.Stop()
	b.untilOffice(t, true)
	last.Stop()
	b.requireFree(t, janitor.LockName(namespaceID))
	b.serve(t)
	b.untilOffice(t, true)
}

// A step keeps one lock while it waits for another, and its run is reset. The new run needs the first one in its own name.
func TestJanitor_WaitingRunIsReset_StepsHoldIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	janitored(t, b)
	var wasReset atomic.Bool
	b.workflow("W", func(ctx workflow.Context) error {
		if wasReset.Load() {
			return saga(ctx, func(ctx workflow.Context, _ *workflows.Saga) error { return do(workflows.Guard(ctx, account), "Do") })
		}
		both := workflows.Locks{Resources: []lockcore.Resource{account, account2}, Scope: workflows.ScopeStep}
		return do(workflows.WithLocks(ctx, both), "Do")
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Do": nothing})
	other := b.taken(t, account2)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.Len(t, b.holders(t, account.Name), 1)
	wasReset.Store(true)
	b.succeed(t, b.reset(t, run, 1))
	b.requireFree(t, account.Name)
	require.NoError(t, other.Leave(t.Context()))
}
