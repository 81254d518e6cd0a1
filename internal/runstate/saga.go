package runstate

import (
	"slices"
	"strconv"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Saga is one saga. It may be inside another one; then the locks of both belong to the scope of the outer one.
type Saga struct {
	outer *Saga
	// id identifies the saga within its run: its number after the ID of the outer saga, such as "2/5". It is empty without the interceptor.
	id string
	// ctx is the context of the latest guarded step, in this saga or in those inside it. The saga's bar has its values.
	ctx workflow.Context
	// scheduled lists the resources of the guarded steps that were scheduled, in this saga and in those inside it.
	scheduled uses
	// undoing is set once the saga's compensations have begun: from then on its other guarded steps are refused. undoingInside counts the
	// sagas inside this one that are being undone.
	undoing       bool
	undoingInside int
	// ended is set once the saga has committed or has been undone.
	ended bool
}

// WithSaga returns the context of a new saga, inside that of ctx if there is one that has not ended.
func WithSaga(ctx workflow.Context) (workflow.Context, *Saga) {
	c := stepContextOf(ctx)
	saga := &Saga{outer: c.saga}
	for saga.outer != nil && saga.outer.ended {
		saga.outer = saga.outer.outer
	}
	if c.state != nil {
		c.state.sagas++
		saga.id = strconv.Itoa(c.state.sagas)
		if saga.outer != nil {
			saga.id = saga.outer.id + "/" + saga.id
		}
	}
	c.saga = saga
	return c.attach(ctx), saga
}

// SagaFrom returns the saga of ctx, or nil.
func SagaFrom(ctx workflow.Context) *Saga { return stepContextOf(ctx).saga }

// IsUndoing reports whether the saga, or one around it, is being undone, or has been.
func (s *Saga) IsUndoing() bool { return s != nil && (s.undoing || s.outer.IsUndoing()) }

// IsWithin reports whether the saga is other, or inside it.
func (s *Saga) IsWithin(other *Saga) bool { return s != nil && (s == other || s.outer.IsWithin(other)) }

func (s *Saga) undoesInside() bool { return s != nil && s.undoingInside > 0 }

// AwaitInner blocks until no saga inside this one is being undone.
func (s *Saga) AwaitInner(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = workflow.Await(ctx, func() bool { return !s.undoesInside() }) // it is never cancelled
}

// BeginUndo ends the waits of the saga's steps before its compensations run: a step that ran after them would not be undone. It does not
// affect steps that run already. It returns after the undoing of the sagas inside this one has ended.
func (s *Saga) BeginUndo(ctx workflow.Context) {
	s.undoing = true
	for o := s.outer; o != nil; o = o.outer {
		o.undoingInside++
	}
	if state := StateFrom(ctx); state != nil {
		for _, scope := range slices.Clone(state.open) {
			scope.awaitParked(ctx)
		}
	}
	s.AwaitInner(ctx)
}

// End records that the saga has committed, or that its compensations have ended.
func (s *Saga) End() {
	for o := s.outer; s.undoing && o != nil; o = o.outer {
		o.undoingInside--
	}
	s.ended = true
}

// Bar blocks until none of the guarded steps that were scheduled so far, in this saga and in those inside it, can still run. Their later
// attempts are refused.
func (s *Saga) Bar(ctx workflow.Context) {
	state := StateFrom(ctx)
	if state == nil || len(s.scheduled) == 0 {
		return
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	all := pieces(s.scheduled, wire.ActivityBar, "wait for steps that may run on ", func(piece uses) any {
		return wire.BarParams{Resources: piece.names(), Saga: s.id, Schedule: state.schedules, Collection: state.collectionID()}
	})
	if err := state.awaitAll(ctx, s.ctx, all); err != nil {
		workflow.GetLogger(ctx).Error("lockstep: a saga is undone although a step of it may still run", "error", err)
	}
}

// scheduledStep records that a step of the saga that locks resources was scheduled under ctx.
func (s *Saga) scheduledStep(ctx workflow.Context, resources []lockcore.Resource) {
	for o := s; o != nil; o = o.outer {
		o.ctx = ctx
		o.scheduled.addAll(resources)
	}
}

// ReleaseLocks releases the Locks that the saga's function has taken and not released, and blocks until these and the saga's own locks are
// released, or ctx is cancelled. Later calls of these Locks return an error that matches lockcore.ErrEnded.
func (s *Saga) ReleaseLocks(ctx workflow.Context) error {
	state := StateFrom(ctx)
	if state == nil {
		return nil
	}
	used := slices.Clone(s.scheduled)
	for _, scope := range slices.Clone(state.open) {
		if l := scope.lock; l != nil && !l.ended && l.step.saga.IsWithin(s) {
			for _, u := range scope.uses {
				used.add(u)
			}
			l.ended, l.result = true, wire.NewEnded("lockstep: the saga began again, and its lock was released", false)
			scope.Release()
		}
	}
	return state.awaitReleased(ctx, used)
}
