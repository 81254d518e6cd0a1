package interceptors

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options configures an [Interceptor].
type Options struct {
	// Locker takes and keeps the locks of the steps that this worker runs. Without one, guarded steps fail with a retryable error;
	// workflows run and replay.
	Locker *lockcore.Locker
	// Rules guard activities by their type; package worker checks them.
	Rules []Rule
	// TaskQueue is the task queue of Lockstep's own activities. Defaults to the workflow's.
	TaskQueue string
	// DataConverter, if not nil, encodes guards, so that histories do not show the names of resources.
	DataConverter converter.DataConverter
	// Connected, if not nil, is called with each connection to Temporal that the interceptor learns of: from [Interceptor.Connect], and
	// from the first activity of a namespace that this process runs. It must not block.
	Connected func(Connection)
}

// Same reports whether interceptors with these options guard alike: with the same Locker and task queue, rules for the same activities,
// and a DataConverter or none. Two data converters cannot be compared.
func (o Options) Same(other Options) bool {
	return o.Locker == other.Locker && o.TaskQueue == other.TaskQueue && (o.DataConverter == nil) == (other.DataConverter == nil) &&
		slices.EqualFunc(o.Rules, other.Rules, func(a, b Rule) bool { return a.Activity == b.Activity })
}

// Interceptor is Lockstep's worker interceptor. If it is installed twice, it guards once.
type Interceptor struct {
	interceptor.WorkerInterceptorBase
	options    Options
	rules      map[string]Rule // by activity type
	locker     locker
	waker      *waker
	closer     *closer
	namespaces currentrun.NamespaceIDs
	// leaves counts the leaves of steps that have returned.
	leaves   background
	unlocked unlockedCalls
	// cannotWait has the types of activities for which warnCannotWait has logged.
	cannotWait sync.Map
}

var _ interceptor.WorkerInterceptor = (*Interceptor)(nil)

// New returns an interceptor. Most users install it by package worker.
func New(o Options) *Interceptor {
	i := &Interceptor{options: o, rules: make(map[string]Rule, len(o.Rules))}
	for _, rule := range o.Rules {
		i.rules[rule.Activity] = rule
	}
	if o.Locker != nil {
		steps := o.Locker.Steps()
		i.locker = coreLocker{steps}
		i.waker = newWaker(steps, i.connected)
		i.closer = newCloser(i.locker, i.waker)
	}
	return i
}

func (i *Interceptor) connected(c Connection) {
	i.closer.connected()
	if i.options.Connected != nil {
		i.options.Connected(c)
	}
}

// Options returns the options of the interceptor.
func (i *Interceptor) Options() Options { return i.options }

// Connect makes this process wake the workflows of a namespace that wait for locks, before it has run an activity of theirs. The
// interceptor must have a Locker. Call [Interceptor.Disconnect] before the connection is closed.
func (i *Interceptor) Connect(c Connection) {
	c.Own = true
	i.waker.connect(c)
}

// Disconnect ends the use of a connection.
func (i *Interceptor) Disconnect(c Connection) { i.waker.disconnect(c) }

func (i *Interceptor) collectionID() string {
	if i.locker == nil {
		return ""
	}
	return i.locker.KnownCollectionID()
}

// Flush blocks until the steps that have returned have left their locks, the locks of the runs that have returned are released, and the workflows
// that got these locks are woken, or until ctx ends. Call it after a worker has stopped, and before the Locker is closed.
func (i *Interceptor) Flush(ctx context.Context) {
	if i.locker == nil {
		return
	}
	i.leaves.wait(ctx)
	i.closer.waits.wait(ctx)
	i.waker.senders.wait(ctx)
}

// InterceptWorkflow returns the workflow side, one for each run in the worker's cache.
func (i *Interceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	var closes runstate.Closer
	if i.closer != nil {
		closes = i.closer
	}
	return &workflowInbound{
		WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}, unlocked: &i.unlocked,
		state: runstate.NewState(i.collectionID, closes, i.options.TaskQueue, i.options.DataConverter),
	}
}

// InterceptActivity returns the activity side, one for each attempt.
func (i *Interceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &activityInbound{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, Interceptor: i}
}

// locker is the part of a *lockcore.Steps that the interceptor needs.
type locker interface {
	currentrun.Locker
	NewStepSession(ctx context.Context, leases []lockcore.Lease, left time.Duration) session
	Renew(ctx context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error)
	LeaveQueue(ctx context.Context, lease lockcore.Lease) (ended bool, err error)
}

// session is the part of a *lockcore.Session that the interceptor needs, with its LeaveWithin.
type session interface {
	Context() context.Context
	Lost() error
	Leases() []lockcore.Lease
	Leave(ctx context.Context) error
	LeaveWithin(ctx context.Context, d time.Duration) error
	Release(ctx context.Context) error
}

type coreLocker struct{ *lockcore.Steps }

func (l coreLocker) NewStepSession(ctx context.Context, leases []lockcore.Lease, left time.Duration) session {
	return coreSession{l.Steps.NewStepSession(ctx, leases, left), l.Steps}
}

type coreSession struct {
	*lockcore.Session
	steps *lockcore.Steps
}

func (s coreSession) LeaveWithin(ctx context.Context, d time.Duration) error {
	return s.steps.LeaveWithin(ctx, d, s.Session)
}

// background counts goroutines, and waits until none is left.
type background struct {
	mu sync.Mutex
	n  int
	// idle, if not nil, is closed when n becomes 0.
	idle chan struct{}
}

// begin counts one more goroutine, which must call end. It returns false if there are limit of them already.
func (b *background) begin(limit int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n >= limit {
		return false
	}
	b.n++
	return true
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n--; b.n == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// wait blocks until all goroutines have ended, or ctx ends.
func (b *background) wait(ctx context.Context) {
	b.mu.Lock()
	if b.n == 0 {
		b.mu.Unlock()
		return
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-idle:
	}
}
