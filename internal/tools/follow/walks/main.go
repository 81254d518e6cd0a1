// Command walks makes the call that its first argument names, and writes the coverage of this call into the folder that the second one
// names. Command follow builds it with coverage and runs it.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"runtime/coverage"
	"runtime/metrics"
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

var account = lockcore.Exclusive("account/42")

func main() {
	walk := map[string]func(ctx context.Context){"acquire": acquire, "wake": wake, "guard": guard, "saga": saga}[os.Args[1]]
	walk(context.Background())
}

// begin is called before the call whose coverage counts. It discards the coverage of what was set up.
func begin() {
	settle()
	must(coverage.ClearCounters())
}

// end is called after it. If there are several calls, their coverage is added.
func end() {
	settle()
	must(coverage.WriteMetaDir(os.Args[2]))
	must(coverage.WriteCountersDir(os.Args[2]))
}

// settle waits until all other goroutines wait, so that what they do in the background is counted in each run or in none.
func settle() {
	others := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"}}
	for quiet := 0; quiet < 10; quiet++ {
		runtime.Gosched()
		if metrics.Read(others); others[0].Value.Uint64() > 0 || others[1].Value.Uint64() > 1 {
			quiet = 0
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func newLocker(s lockcore.Store) *lockcore.Locker {
	locker, err := lockcore.NewWithStore(s, lockcore.Config{})
	must(err)
	return locker
}

func mustAcquire(ctx context.Context, locker *lockcore.Locker, lockID string) *lockcore.Session {
	session, err := locker.Acquire(ctx, lockcore.Request{LockID: lockID, Resources: []lockcore.Resource{account}})
	must(err)
	return session
}

// acquire calls Acquire for a free resource.
func acquire(ctx context.Context) {
	locker := newLocker(lockcoretest.NewStore(time.Now))
	begin()
	mustAcquire(ctx, locker, "a")
	end()
}

// reporting is a store that reports its swaps.
type reporting struct {
	*lockcoretest.Store
	swapped chan struct{}
}

func (r reporting) Swap(ctx context.Context, swaps ...store.Swap) (int, error) {
	done, err := r.Store.Swap(ctx, swaps...)
	r.swapped <- struct{}{}
	return done, err
}

// wake calls Acquire for a resource that another Locker, as in another process, holds and then releases.
func wake(ctx context.Context) {
	all := reporting{lockcoretest.NewStore(time.Now), make(chan struct{}, 100)}
	locker, other := newLocker(all), newLocker(all)
	held := mustAcquire(ctx, other, "b")
	<-all.swapped
	released := make(chan error, 1)
	go func() {
		<-all.swapped // the waiter is in the queue
		released <- held.Release(ctx)
	}()
	begin()
	mustAcquire(ctx, locker, "a")
	must(<-released)
	end()
}

// run runs a workflow function in the SDK's test environment, and returns the workflow's error.
func run(fn func(ctx workflow.Context) error, outer ...interceptor.WorkerInterceptor) error {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	locker := newLocker(lockcoretest.NewStore(env.Now))
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	must(err)
	env.SetWorkerOptions(sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, Interceptors: outer, DeadlockDetectionTimeout: time.Minute})
	env.SetTestTimeout(time.Minute)
	env.RegisterActivity(Succeed)
	env.RegisterActivity(Fail)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		return fn(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute}))
	})
	return env.GetWorkflowError()
}

// Succeed is a step that succeeds.
func Succeed(context.Context) error {
	settle() // its leases are renewed
	return nil
}

// Fail is a step that fails.
func Fail(context.Context) error {
	return temporal.NewNonRetryableApplicationError("no", "Refused", nil)
}

// guard runs a guarded step.
func guard(context.Context) {
	must(run(func(ctx workflow.Context) error {
		begin()
		err := workflow.ExecuteActivity(workflows.Guard(ctx, account), Succeed).Get(ctx, nil)
		end()
		return err
	}))
}

// ending calls end after a workflow has ended, and before the environment stops the worker.
type ending struct {
	interceptor.WorkerInterceptorBase
	interceptor.WorkflowInboundInterceptorBase
}

func (*ending) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &ending{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

func (e *ending) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	defer end()
	return e.Next.ExecuteWorkflow(ctx, in)
}

// saga runs a saga that commits, and one that fails and compensates, each until the end of its workflow.
func saga(context.Context) {
	for _, second := range []any{Succeed, Fail} {
		err := run(func(ctx workflow.Context) error {
			begin()
			return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, s *workflows.Saga) error {
				ctx = workflows.Guard(ctx, account)
				if err := s.Step(ctx, Succeed, Succeed).Get(ctx, nil); err != nil {
					return err
				}
				return workflow.ExecuteActivity(ctx, second).Get(ctx, nil)
			})
		}, &ending{})
		var failed *temporal.ApplicationError
		if !errors.As(err, &failed) || failed.Type() != "Refused" {
			must(err)
		}
	}
}
