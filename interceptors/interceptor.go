package interceptors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
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
	leaves background
	// logged has the arguments of isFirst.
	logged sync.Map
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

// isFirst reports whether it has not been called with this kind and name before, for logs that appear once.
func (i *Interceptor) isFirst(kind, name string) bool {
	_, logged := i.logged.LoadOrStore([2]string{kind, name}, true)
	return !logged
}

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
		WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}, isFirst: i.isFirst,
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

// First returns an interceptor for the beginning of a list of interceptors. It returns the failures of Lockstep to Temporal as they are, even if
// another interceptor of the list has wrapped them: the server and the workflow read the type of a failure and the delay before the next attempt
// from the failure itself and not from its causes. Everything else passes unchanged.
func First() interceptor.Interceptor { return theFirst }

type first struct{ interceptor.InterceptorBase }

var theFirst = &first{}

// InterceptActivity returns the activity side, one for each attempt.
func (*first) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &firstInbound{interceptor.ActivityInboundInterceptorBase{Next: next}}
}

type firstInbound struct {
	interceptor.ActivityInboundInterceptorBase
}

// ownFailure is the failure with which Lockstep's own interceptor has ended an attempt, or nil.
type ownFailure struct{ err error }

type ownFailureKey struct{}

func (f *firstInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if _, inner := ctx.Value(ownFailureKey{}).(*ownFailure); inner { // the client's list begins with another one, which does it
		return f.Next.ExecuteActivity(ctx, in)
	}
	own := &ownFailure{}
	result, err := f.Next.ExecuteActivity(context.WithValue(ctx, ownFailureKey{}, own), in)
	if own.err != nil && errors.Is(err, own.err) {
		return nil, own.err
	}
	return result, err
}

// note records the error of an attempt for the first interceptor, if it is a failure of Lockstep.
func note(ctx context.Context, err error) {
	own, ok := ctx.Value(ownFailureKey{}).(*ownFailure)
	if !ok {
		return
	}
	own.err = nil
	if app, ok := err.(*temporal.ApplicationError); ok && strings.HasPrefix(app.Type(), wire.ActivityPrefix) { //nolint:errorlint // not its causes
		own.err = err
	}
}

// workflowInbound gives a run its state. There is one for each run in the worker's cache. If the run is replayed, there is a new one, and
// the replay fills its state.
type workflowInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	state   *runstate.State
	isFirst func(kind, name string) bool
}

// Init installs the outbound side.
func (w *workflowInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return w.Next.Init(&workflowOutbound{
		WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: outbound}, isFirst: w.isFirst,
	})
}

// ExecuteWorkflow runs the workflow function with the state in its context. The state ends when the function has returned, and not in a deferred
// function: these also run when the workflow is evicted from the cache, and after a panic, after which the run continues and needs its locks.
func (w *workflowInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	if runstate.StateFrom(ctx) != nil { // installed twice: the outer one does it
		return w.Next.ExecuteWorkflow(ctx, in)
	}
	if err := w.state.Begin(ctx, interceptor.WorkflowHeader(ctx)); err != nil {
		panic(err) // fails the workflow task, and not the workflow, until a worker that can read the header takes it
	}
	ctx = runstate.WithState(ctx, w.state)
	result, err := w.Next.ExecuteWorkflow(ctx, in)
	w.state.End(ctx, err)
	return result, wire.Recorded(err)
}

// ExecuteUpdate runs an update handler with the same state. Its context does not derive from that of the workflow function.
func (w *workflowInbound) ExecuteUpdate(ctx workflow.Context, in *interceptor.UpdateInput) (any, error) {
	if runstate.StateFrom(ctx) == nil {
		ctx = runstate.WithState(ctx, w.state)
	}
	result, err := w.Next.ExecuteUpdate(ctx, in)
	return result, wire.Recorded(err)
}

// workflowOutbound writes the guards of steps into their headers.
type workflowOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	isFirst func(kind, name string) bool
}

// guardedKey marks the context of a call that an outer copy of this interceptor has handled already.
type guardedKey struct{}

// ExecuteActivity numbers the step and, if its context asks for locks, writes its guard. It never blocks, and adds no command but that of the step.
func (w *workflowOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	state := runstate.StateFrom(ctx)
	if state != nil && strings.HasPrefix(activityType, "internalSession") { // the SDK begins or ends a session
		state.HasSessions = true
	}
	if state == nil || ctx.Value(guardedKey{}) != nil || wire.IsNeverGuarded(activityType) {
		return w.Next.ExecuteActivity(ctx, activityType, args...)
	}
	step, err := state.Step(ctx, activityType)
	ctx = workflow.WithValue(ctx, guardedKey{}, true)
	switch {
	case err != nil:
		return runstate.Failed(ctx, err)
	case step == nil:
		state.WriteRuleFacts(ctx, interceptor.WorkflowHeader(ctx))
		return w.Next.ExecuteActivity(ctx, activityType, args...)
	}
	return step.Run(ctx, w.Next.ExecuteActivity, activityType, args)
}

// ExecuteLocalActivity refuses a guarded one. The worker and not the server counts its attempts and sets their times, so they cannot be ordered.
func (w *workflowOutbound) ExecuteLocalActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	if runstate.GuardsSteps(ctx) && !wire.IsNeverGuarded(activityType) {
		return runstate.Failed(ctx, runstate.Invalid("workflows.Guard", fmt.Sprintf("around the local activity %q", wire.Cut(activityType, 128)),
			"an ordinary activity, by workflow.ExecuteActivity; or workflows.Lock, and the local activity under workflows.Unguarded"))
	}
	return w.Next.ExecuteLocalActivity(ctx, activityType, args...)
}

// Go tracks coroutines, so that a step in a saga's function is recognised as the saga's even if its context comes from outside the saga.
func (w *workflowOutbound) Go(ctx workflow.Context, name string, f func(ctx workflow.Context)) workflow.Context {
	return w.Next.Go(ctx, name, runstate.TrackCoroutine(ctx, f))
}

// ExecuteChildWorkflow writes the owner that the child inherits into its header, if the context has one.
func (w *workflowOutbound) ExecuteChildWorkflow(ctx workflow.Context, childType string, args ...any) workflow.ChildWorkflowFuture {
	runstate.WriteOwner(ctx, interceptor.WorkflowHeader(ctx))
	w.logUnlocked(ctx, "child workflow", childType)
	return w.Next.ExecuteChildWorkflow(ctx, childType, args...)
}

// ExecuteNexusOperation logs a guard, which locks nothing around an operation.
func (w *workflowOutbound) ExecuteNexusOperation(ctx workflow.Context, in interceptor.ExecuteNexusOperationInput) workflow.NexusOperationFuture {
	name := fmt.Sprint(in.Operation)
	if reference, ok := in.Operation.(interface{ Name() string }); ok {
		name = reference.Name()
	}
	w.logUnlocked(ctx, "Nexus operation", name)
	return w.Next.ExecuteNexusOperation(ctx, in)
}

// NewContinueAsNewError lets the next run keep the owner that this one inherited.
func (w *workflowOutbound) NewContinueAsNewError(ctx workflow.Context, fn any, args ...any) error {
	if state := runstate.StateFrom(ctx); state != nil {
		state.Continue(interceptor.WorkflowHeader(ctx))
	}
	return w.Next.NewContinueAsNewError(ctx, fn, args...)
}

// logUnlocked logs an error, once for each type, if ctx has a guard, which cannot lock a call of this kind. The call is not refused, because one
// context often serves several calls.
func (w *workflowOutbound) logUnlocked(ctx workflow.Context, kind, name string) {
	if runstate.GuardsSteps(ctx) && !workflow.IsReplaying(ctx) && w.isFirst(kind, name) {
		workflow.GetLogger(ctx).Error(fmt.Sprintf("lockstep: a guard around a %s locks nothing while that runs: take the locks by workflows.Lock, "+
			"or call it under workflows.Unguarded", kind), "type", name)
	}
}
