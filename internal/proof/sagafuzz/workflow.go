package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Names of what the fuzzer registers.
const (
	playName  = "play"
	stepName  = "step"
	ruledName = "ruled-step"
	undoName  = "undo"
	// innerName is the step of a saga inside a compensation.
	innerName = "inner-step"

	stopSignal = "stop"
)

// player runs the workflows and activities of plans in one worker process.
type player struct {
	interceptor.WorkerInterceptorBase
	log      *Log
	process  string
	accounts accounts
	execs    atomic.Int64
}

// Play is the workflow.
func (p *player) Play(ctx workflow.Context, in Input) error {
	w := &walk{player: p, in: in}
	ctx = workflows.WithOwner(ctx, in.Owner)
	if err := w.handleUpdates(ctx); err != nil {
		return err
	}
	err := w.do(ctx, nil, "", &in.Body)
	w.awaitUpdates(ctx)
	w.drain(ctx)
	if err == nil && in.Again > 0 {
		err = w.again(ctx)
	}
	w.leave(ctx, rootScope, err)
	return err
}

// walk is one run of a workflow.
type walk struct {
	*player
	in Input
}

// again returns the error with which the run continues as new.
func (w *walk) again(ctx workflow.Context) error {
	next := w.in
	next.Again--
	return workflow.NewContinueAsNewError(ctx, playName, next)
}

// write logs the progress of workflow code, except during replay.
func (w *walk) write(ctx workflow.Context, r *Record) {
	if workflow.IsReplaying(ctx) {
		return
	}
	info := workflow.GetInfo(ctx).WorkflowExecution
	r.Workflow, r.Run, r.Task = info.ID, info.RunID, int64(workflow.GetInfo(ctx).GetCurrentHistoryLength())
	w.log.Write(r)
}

// receive receives a signal without waiting, and reports whether there was one.
func (w *walk) receive(ctx workflow.Context) bool {
	var id string
	if !workflow.GetSignalChannel(ctx, stopSignal).ReceiveAsync(&id) {
		return false
	}
	w.write(ctx, &Record{What: Heard, Other: id})
	return true
}

// drain receives all signals that have arrived.
func (w *walk) drain(ctx workflow.Context) {
	for w.receive(ctx) {
		continue
	}
	w.write(ctx, &Record{What: Drained})
}

// heed returns an error if the node heeds signals and cancellations, and one has arrived.
func (w *walk) heed(ctx workflow.Context, n *Node) error {
	switch {
	case !n.Heeds:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case w.receive(ctx):
		return temporal.NewNonRetryableApplicationError("a signal came", "planned", nil)
	}
	return nil
}

// leave logs that a scope is about to end with err.
func (w *walk) leave(ctx workflow.Context, scope string, err error) {
	r := &Record{What: Leaving, Scope: scope, Error: text(err), Type: kindOf(err)}
	var again *workflow.ContinueAsNewError
	if errors.As(err, &again) {
		r.Error, r.Type = "", ""
		if w.in.handsOver() {
			r.What = HandOver
		}
	}
	w.write(ctx, r)
}

// do runs a node. instance names the sagas around it, and s is the innermost one.
func (w *walk) do(ctx workflow.Context, s *workflows.Saga, instance string, n *Node) error {
	switch n.Kind {
	case Seq:
		return w.each(ctx, s, instance, n)
	case Par:
		return w.parallel(ctx, s, instance, n)
	case Saga:
		return w.saga(ctx, instance, n)
	case Lock:
		return w.lock(ctx, s, instance, n)
	case Sleep:
		return workflow.Sleep(ctx, n.Time)
	case Verify:
		return w.verify(ctx, s, instance, n)
	}
	err := w.step(ctx, s, instance, n)
	if err == nil || !n.Ignores {
		return err
	}
	scope, _, _ := strings.Cut(instance, "/")
	w.write(ctx, &Record{What: Ignored, Scope: scope, Error: text(err), Type: kindOf(err)})
	return nil
}

func (w *walk) each(ctx workflow.Context, s *workflows.Saga, instance string, n *Node) error {
	for i := range n.Children {
		if err := w.do(ctx, s, instance, &n.Children[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) parallel(ctx workflow.Context, s *workflows.Saga, instance string, n *Node) (first error) {
	wg := workflow.NewWaitGroup(ctx)
	for i := range n.Children {
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			if err := w.do(ctx, s, instance, &n.Children[i]); err != nil && first == nil {
				first = err
			}
		})
	}
	wg.Wait(ctx)
	return first
}

func (w *walk) saga(ctx workflow.Context, outer string, n *Node) error {
	var scope string
	err := workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: n.Retries},
		func(ctx workflow.Context, s *workflows.Saga) error {
			scope = strings.TrimPrefix(fmt.Sprintf("%s/%d.%d", outer, n.ID, s.Attempt()), "/")
			err := w.each(ctx, s, scope, n)
			if err == nil {
				err = w.heed(ctx, n)
			}
			if err == nil && outer == "" && w.in.Again > 0 {
				w.drain(ctx)
				err = w.again(ctx)
				if w.in.handsOver() {
					err = workflows.HandOver(ctx, err)
				}
			}
			w.leave(ctx, scope, err)
			return err
		})
	w.returned(ctx, scope, err)
	return err
}

func (w *walk) returned(ctx workflow.Context, scope string, err error) {
	var again *workflow.ContinueAsNewError
	if errors.As(err, &again) {
		err = nil
	}
	w.write(ctx, &Record{What: Returned, Scope: scope, Error: text(err), Type: kindOf(err)})
}

func (w *walk) lock(ctx workflow.Context, s *workflows.Saga, instance string, n *Node) error {
	scope := strconv.Itoa(n.ID)
	if n.Skip && w.receive(ctx) {
		w.write(ctx, &Record{What: Skipped, Scope: scope, Needs: n.Needs})
		return workflow.Sleep(ctx, n.Time)
	}
	hold, err := workflows.Lock(ctx, workflows.Locks{
		Resources: resources(n.Needs), HoldTTL: n.HoldTTL, MaxWait: n.MaxWait, Try: n.Try,
	})
	if err != nil {
		return err
	}
	w.write(ctx, &Record{What: Locked, Scope: scope, Needs: n.Needs, Held: membersOf(hold)})
	err = w.each(workflow.WithValue(ctx, lockKey{}, &openLock{hold, scope}), s, instance, n)
	if err == nil && n.More != nil && w.receive(ctx) {
		err = w.step(ctx, s, instance, n.More)
	}
	w.leave(ctx, scope, err)
	released := hold.Release(ctx)
	w.returned(ctx, scope, released)
	return cmp.Or(err, released)
}

func (w *walk) step(ctx workflow.Context, s *workflows.Saga, instance string, n *Node) error {
	call := Call{Node: *n, Instance: instance}
	switch {
	case n.Scope == "step" || n.Scope == "" && s == nil:
	case s == nil:
		call.Kept = rootScope
	default:
		call.Kept, _, _ = strings.Cut(instance, "/")
	}
	name := stepName
	if len(n.Rule) > 0 {
		name = ruledName
	}
	if len(n.Needs) > 0 {
		ctx = workflows.WithLocks(ctx, workflows.Locks{
			Resources: resources(n.Needs), Scope: workflows.Scope(n.Scope),
			HoldTTL: n.HoldTTL, MaxWait: n.MaxWait, Try: n.Try,
		})
	}
	undo := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 2*time.Second + n.UndoTime, Priority: temporal.Priority{PriorityKey: n.Priority},
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 50 * time.Millisecond, BackoffCoefficient: 1},
	})
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: n.Timeout, WaitForCancellation: n.Deaf && n.ID%2 == 0, Priority: temporal.Priority{PriorityKey: n.Priority},
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 50 * time.Millisecond, BackoffCoefficient: 1, MaximumAttempts: n.Attempts},
	})
	if n.Undo == "step" {
		done := s.Step(ctx, name, undoName, &call)
		call.Changed = n.Reuse
		return done.Get(ctx, nil)
	}
	asScheduled := call
	switch n.Undo {
	case "with":
		if err := s.CompensateWith(undo, undoName, &call); err != nil {
			return err
		}
	case "saga":
		if err := s.Compensate(undo, func(ctx workflow.Context) error { return w.undoBySaga(ctx, asScheduled) }); err != nil {
			return err
		}
	}
	done := workflow.ExecuteActivity(ctx, name, &call)
	call.Changed = n.Reuse
	return done.Get(ctx, nil)
}

// undoBySaga undoes a step by a saga of two: a step of its own, and the compensation.
func (w *walk) undoBySaga(ctx workflow.Context, call Call) error {
	var scope string
	err := workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: -1}, func(ctx workflow.Context, s *workflows.Saga) error {
		scope = fmt.Sprintf("%s/%d%s%d", call.Instance, call.Node.ID, inUndo, s.Attempt())
		own := Call{Instance: scope, Kept: call.Kept, Node: Node{
			Kind: Step, ID: call.Node.ID, Needs: call.Node.Needs, Undo: "step", Time: 5 * time.Millisecond,
		}}
		err := s.Step(ctx, innerName, undoName, own).Get(ctx, nil)
		if err == nil {
			err = workflow.ExecuteActivity(ctx, undoName, call).Get(ctx, nil)
		}
		w.leave(ctx, scope, err)
		return err
	})
	w.returned(ctx, scope, err)
	return err
}

// inUndo separates the step and the attempt in the name of a saga inside a compensation.
const inUndo = "u."

type execKey struct{}

// Step is the activity of all steps. It works for a time, and ends early when its context is done, unless it is deaf.
func (p *player) Step(ctx context.Context, call Call) error {
	long := call.Node.Time
	if call.Node.Once && activity.GetInfo(ctx).Attempt > 1 {
		long = 10 * time.Millisecond
	}
	if err := p.work(ctx, long, call.Node.Deaf); err != nil {
		return err
	}
	if call.Node.Fail {
		return temporal.NewNonRetryableApplicationError("as planned", "planned", nil)
	}
	return nil
}

// Undo is the activity of all compensations. It never fails by itself.
func (p *player) Undo(ctx context.Context, call Call) error {
	return p.work(ctx, cmp.Or(call.Node.UndoTime, 10*time.Millisecond), false)
}

// lookEvery is the interval at which a step checks that its leases are valid.
const lookEvery = 5 * time.Millisecond

func (p *player) work(ctx context.Context, long time.Duration, deaf bool) error {
	exec, _ := ctx.Value(execKey{}).(string)
	return observe(ctx, p.log, p.accounts, exec, long, deaf, func() []lockcore.Lease { return activities.Leases(ctx) })
}

// observe logs the begin and the end of work under leases, and the last time at which all of them were valid. The work writes the accounts of
// the members of pools that it has. It ends early when ctx is done, unless it is deaf.
func observe(
	ctx context.Context, log *Log, accounts accounts, exec string, long time.Duration, deaf bool, leases func() []lockcore.Lease,
) (err error) {
	begin := &Record{What: Begin, Exec: exec}
	first := leases()
	for _, l := range first {
		begin.Held = append(begin.Held, Held{Resource: l.Resource, Fence: l.Fence, Joined: l.Joined, Member: l.Member, Least: l.LeastFence})
	}
	log.Write(begin)
	written := accounts.keepWriting(ctx, log, exec, first)
	done := ctx.Done()
	if deaf {
		done = nil
	}
	over := time.After(long)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	trusted := int64(0)
	for working := true; working; {
		select {
		case <-over:
			working = false
		case <-done:
			working, err = false, context.Cause(ctx)
		case <-look.C:
		}
		if now := time.Now().UnixNano(); valid(leases(), len(first)) {
			trusted = now
		}
	}
	written()
	if now := time.Now().UnixNano(); valid(leases(), len(first)) {
		trusted = now
	}
	log.Write(&Record{What: End, Exec: exec, Trusted: trusted, Error: text(err), Type: kindOf(err)})
	return err
}

// valid reports whether there are still count leases, and all are valid.
func valid(leases []lockcore.Lease, count int) bool {
	return len(leases) == count && !slices.ContainsFunc(leases, func(l lockcore.Lease) bool { return !l.Valid() })
}

// InterceptActivity logs attempts outside of Lockstep's own interceptor.
func (p *player) InterceptActivity(
	_ context.Context, next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	return &outside{interceptor.ActivityInboundInterceptorBase{Next: next}, p}
}

type outside struct {
	interceptor.ActivityInboundInterceptorBase
	*player
}

// ExecuteActivity logs an attempt of a step or a compensation.
func (o *outside) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if len(in.Args) != 1 {
		return o.Next.ExecuteActivity(ctx, in)
	}
	call, ours := in.Args[0].(Call)
	if !ours {
		return o.Next.ExecuteActivity(ctx, in)
	}
	info := activity.GetInfo(ctx)
	exec := fmt.Sprintf("%s.%d", o.process, o.execs.Add(1))
	o.log.Write(&Record{
		What: Enter, Exec: exec, Workflow: info.WorkflowExecution.ID, Run: info.WorkflowExecution.RunID,
		Call: &call, Undo: info.ActivityType.Name == undoName, Attempt: info.Attempt,
	})
	result, err := o.Next.ExecuteActivity(context.WithValue(ctx, execKey{}, exec), in)
	o.log.Write(&Record{What: Exit, Exec: exec, Error: text(err), Type: kindOf(err)})
	return result, err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// kindOf names the kind of an error. It is "other" if the error is not one of Lockstep's.
func kindOf(err error) string {
	var undone *workflows.SagaError
	var failed *temporal.ApplicationError
	typed := err
	if found := workflows.LockError(err); found != nil {
		typed = found
	}
	switch {
	case err == nil:
		return ""
	case errors.As(err, &undone), errors.As(err, &failed) && failed.Type() == "lockstep.SagaFailed":
		return "sagaerror"
	case errors.Is(typed, lockcore.ErrLost):
		return "lost"
	case errors.Is(typed, lockcore.ErrDeadlock):
		return "deadlock"
	case errors.Is(typed, lockcore.ErrSuperseded):
		return "superseded"
	case errors.Is(typed, lockcore.ErrInvalid):
		return "invalid"
	case errors.Is(typed, lockcore.ErrBusy):
		return "busy"
	case temporal.IsCanceledError(err) || errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &failed):
		return failed.Type()
	}
	return "other"
}

// openLock is the Lock around a node.
type openLock struct {
	hold  *workflows.Hold
	scope string
}

type lockKey struct{}

// verify asks whether the locks of the innermost Lock are held, or those of the saga if there is no Lock. It logs the question and
// the answer.
func (w *walk) verify(ctx workflow.Context, s *workflows.Saga, instance string, n *Node) error {
	lock, inLock := ctx.Value(lockKey{}).(*openLock)
	var scope string
	var ask func(workflow.Context) error
	switch {
	case inLock:
		scope, ask = lock.scope, lock.hold.Verify
	case s != nil: // the locks of an inner saga are those of the outermost one
		scope, _, _ = strings.Cut(instance, "/")
		ask = s.Verify
	default:
		return nil
	}
	at := instance + " " + itoa(n.ID)
	w.write(ctx, &Record{What: Asked, Scope: scope, Other: at})
	err := ask(ctx)
	if err == nil {
		w.write(ctx, &Record{What: Verified, Scope: scope, Other: at})
	}
	return err
}
