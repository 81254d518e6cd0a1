package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// A worker without the victim's codec wakes it. The victim is told of the deadlock all the same.
func TestAVictimWithACodecIsToldByAWorkerWithoutIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain := &bundle{client: b.client, plugin: b.plugin, locker: b.locker, queue: b.queue + "-plain", workflows: map[string]any{}}
	plain.workflow("Plain", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, lockcore.Exclusive("plain")), "Do") })
	plain.work(t, sdkworker.Options{}, map[string]any{"Do": nothing})
	_, err := plain.end(t, plain.start(t, "Plain"))
	require.NoError(t, err)

	c := sealed(t)
	victim := &bundle{client: c, locker: b.locker, queue: b.queue, workflows: map[string]any{}}
	work := func(o sdkworker.Options) (sdkworker.Worker, *lockcore.Locker) {
		locker, err := lockcore.New(testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), lockcore.Config{})
		require.NoError(t, err)
		plugin, err := worker.NewPlugin(worker.Options{Locker: locker, TaskQueue: victim.queue})
		require.NoError(t, err)
		o.Plugins = []sdkworker.Plugin{plugin}
		return victim.work(t, o, map[string]any{"Do": nothing}), locker
	}
	victim.workflow("W", toldOfADeadlock)
	work(sdkworker.Options{LocalActivityWorkerOnly: true})
	steps, locker := work(sdkworker.Options{DisableWorkflowWorker: true})

	older := party.Request{LockID: "somebody", Started: time.Now().Add(-time.Hour), Resources: []lockcore.Resource{account2}}
	holds, err := b.locker.Core().TryAcquire(t.Context(), older)
	require.NoError(t, err)
	run := victim.start(t, "W")
	victim.untilParked(t, run)
	steps.Stop() // from here on only the other worker looks
	require.NoError(t, locker.Close(t.Context()))
	older.Resources = []lockcore.Resource{account}
	acquired := make(chan error, 1)
	go func() {
		got, err := b.locker.Core().Acquire(t.Context(), older)
		if err == nil {
			err = got.Leave(t.Context())
		}
		acquired <- err
	}()
	require.Eventually(t, func() bool {
		completed := 0
		for _, e := range b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents() {
			if e.GetActivityTaskCompletedEventAttributes() != nil {
				completed++
			}
		}
		return completed == 2 // the first step, and the wait
	}, within, lookEvery, "the victim is not woken")
	work(sdkworker.Options{DisableWorkflowWorker: true})
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	require.NoError(t, run.Get(ctx, nil))
	require.NoError(t, errors.Join(<-acquired, holds.Leave(t.Context())))
}

// sealed is a client with a codec, which itself wakes no workflow.
func sealed(t *testing.T) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{
		HostPort: testenv.TemporalAddress(t), DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{}),
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if _, wakes := req.(*workflowservice.RespondActivityTaskCompletedByIdRequest); wakes {
				return errors.New("it wakes no workflow itself")
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		})}},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// toldOfADeadlock is a saga that expects to be the victim of one.
func toldOfADeadlock(ctx workflow.Context) error {
	err := workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: -1}, func(ctx workflow.Context, s *workflows.Saga) error {
		if err := s.Step(workflows.Guard(ctx, account), "Do", "Do").Get(ctx, nil); err != nil {
			return err
		}
		return s.Step(workflows.Guard(ctx, account2), "Do", "Do").Get(ctx, nil)
	})
	if deadlock := new(lockcore.DeadlockError); !errors.As(err, &deadlock) || deadlock.Cycle == "" {
		return errors.Join(err, errors.New("it was not told"))
	}
	return nil
}
