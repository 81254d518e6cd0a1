package interceptors

import (
	"context"
	"slices"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/collection"
	"github.com/temporal-lockstep/lockstep/internal/namespace"
	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options is what the interceptor needs.
type Options struct {
	// Locker takes and keeps the locks of the steps that this worker runs. Without one, guarded steps
	// fail with a retryable error; workflows run and replay.
	Locker *lockcore.Locker
	// Rules guard activities by their type; package worker checks them.
	Rules []Rule
	// TaskQueue is that of Lockstep's own activities. Defaults to the workflow's.
	TaskQueue string
	// Connected, unless nil, is called with each connection to Temporal that the interceptor comes to know: by
	// [Interceptor.Connect], and by the first activity of a namespace that this process runs. It must not block.
	Connected func(Connection)
}

// Same reports whether two interceptors with these options would guard alike: with the same Locker and task queue, by rules for
// the same activities.
func (o Options) Same(other Options) bool {
	return o.Locker == other.Locker && o.TaskQueue == other.TaskQueue &&
		slices.EqualFunc(o.Rules, other.Rules, func(a, b Rule) bool { return a.Activity == b.Activity })
}

// Interceptor is Lockstep's worker interceptor. Installed twice, it guards once.
type Interceptor struct {
	interceptor.WorkerInterceptorBase
	options Options
	locker  locker
	waker   *waker
	closer  *closer
	rules   map[string]Rule
	// namespaces are shared by all attempts.
	namespaces *namespace.IDs
	// collection is that of the Locker.
	collection collection.ID
	leaves     background
}

var _ interceptor.WorkerInterceptor = (*Interceptor)(nil)

// New makes the interceptor. Most users install it by package worker.
func New(o Options) *Interceptor {
	i := &Interceptor{options: o, rules: make(map[string]Rule, len(o.Rules)), namespaces: &namespace.IDs{}}
	for _, rule := range o.Rules {
		i.rules[rule.Activity] = rule
	}
	if o.Locker != nil {
		i.locker = coreLocker{o.Locker.Core()}
		i.waker = newWaker(o.Locker.Core(), o.Connected)
		i.closer = newCloser(i.locker, i.waker)
	}
	return i
}

// Options returns what the interceptor was made with.
func (i *Interceptor) Options() Options { return i.options }

// Connect has the workflows of a namespace that wait for locks woken by this process, before it has run an activity of
// theirs. The interceptor must have a Locker. Call disconnect before the connection is closed.
func (i *Interceptor) Connect(c Connection) (disconnect func()) {
	c.Own = true
	i.waker.connect(c)
	return func() { i.waker.disconnect(c) }
}

// Learn asks the database for the ID of the Locker's collection, so that the first step of a workflow can be compared already. It
// takes two seconds at most.
func (i *Interceptor) Learn(ctx context.Context) {
	if i.locker != nil {
		i.collection.Ask(ctx, i.locker)
	}
}

// InterceptWorkflow makes the workflow side, once for each run in the worker's cache.
func (i *Interceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	var closes runstate.Closer
	if i.closer != nil {
		closes = i.closer
	}
	return newWorkflowInbound(next, runstate.NewState(&i.collection, closes, i.options.TaskQueue))
}

// Flush blocks until the steps that have returned have left their locks, the locks of the workflow runs that have returned are
// released, and the workflows that got them are woken, or until ctx ends. Call it when a worker has stopped, before the Locker
// is closed.
func (i *Interceptor) Flush(ctx context.Context) {
	if i.locker == nil {
		return
	}
	i.leaves.wait(ctx)
	i.closer.waits.wait(ctx)
	i.waker.sends.wait(ctx)
}

// InterceptActivity makes the activity side, once for each attempt.
func (i *Interceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &activityInbound{
		ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next},
		locker:                         i.locker,
		namespaces:                     i.namespaces,
		rules:                          i.rules,
		waker:                          i.waker,
		collection:                     &i.collection,
		leaves:                         &i.leaves,
	}
}
