package interceptors

import (
	"context"
	"slices"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol/run"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options is what the interceptor needs.
type Options struct {
	// Locker takes and keeps the locks of the steps that this worker runs. Without one, guarded steps
	// fail with a retryable error; workflows run and replay.
	Locker *lockcore.Locker
	// Cluster names the Temporal cluster in lock IDs; package worker checks it.
	Cluster string
	// Rules guard activities by their type; package worker checks them.
	Rules []run.Rule
}

// Same tells whether two interceptors with these options would guard alike: with the same Locker, in the name of the same
// cluster, by rules for the same activities.
func (o Options) Same(other Options) bool {
	return o.Locker == other.Locker && o.Cluster == other.Cluster &&
		slices.EqualFunc(o.Rules, other.Rules, func(a, b run.Rule) bool { return a.Activity == b.Activity && a.IsRetired == b.IsRetired })
}

// Interceptor is Lockstep's worker interceptor. Installed twice, it guards once.
type Interceptor struct {
	interceptor.WorkerInterceptorBase
	options Options
	locker  locker
	waker   *waker
	rules   map[string]run.Rule
}

var _ interceptor.WorkerInterceptor = (*Interceptor)(nil)

// New makes the interceptor. Most users install it by package worker.
func New(o Options) *Interceptor {
	i := &Interceptor{options: o, rules: make(map[string]run.Rule, len(o.Rules))}
	for _, rule := range o.Rules {
		i.rules[rule.Activity] = rule
	}
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
	return newWorkflowInbound(next, i.rules)
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
