package interceptors

import (
	"context"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options is what the interceptor needs.
type Options struct {
	// Locker takes and keeps the locks of the steps that this worker runs. Without one, guarded steps
	// fail with a retryable error; workflows run and replay.
	Locker *lockcore.Locker
	// Cluster names the Temporal cluster in lock IDs; package worker checks it.
	Cluster string
}

// Interceptor is Lockstep's worker interceptor. Installed twice, it guards once.
type Interceptor struct {
	interceptor.WorkerInterceptorBase
	options Options
	locker  locker
	waker   *waker
}

var _ interceptor.WorkerInterceptor = (*Interceptor)(nil)

// New makes the interceptor. Most users install it by package worker.
func New(o Options) *Interceptor {
	i := &Interceptor{options: o}
	if o.Locker != nil {
		i.locker = coreLocker{o.Locker}
		i.waker = newWaker(o.Locker, o.Cluster)
	}
	return i
}

// Options returns what the interceptor was made with.
func (i *Interceptor) Options() Options { return i.options }

// InterceptWorkflow makes the workflow side, once for each run in the worker's cache.
func (i *Interceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return newWorkflowInbound(next)
}

// InterceptActivity makes the activity side, once for each attempt.
func (i *Interceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &activityInbound{
		ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next},
		locker:                         i.locker,
		cluster:                        i.options.Cluster,
		waker:                          i.waker,
	}
}
