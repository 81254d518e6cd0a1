package run

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// parking is a step that waits for its locks.
type parking struct {
	step *Step
	// stop ends the wait.
	stop workflow.CancelFunc
}

// park notes that the step begins to wait, and returns the context of the wait.
func (t *Step) park(ctx workflow.Context) (workflow.Context, *parking) {
	p := &parking{step: t}
	ctx, p.stop = workflow.WithCancel(ctx)
	if t.within != nil {
		t.within.parked = append(t.within.parked, p)
	}
	return ctx, p
}

// unpark notes that it waits no more, and has left the queue if it had to.
func (p *parking) unpark() {
	p.stop() // its activity is over, and the context is not to be kept
	if c := p.step.within; c != nil {
		c.parked = slices.DeleteFunc(c.parked, func(o *parking) bool { return o == p })
	}
}

// over reports whether the run or the saga that the step belongs to has ended, or the saga is being undone and the step does not
// undo it. Such a step must not run any more.
func (t *Step) over() bool {
	c := t.within
	return t.scope.state.ended || c != nil && (c.closed || c.undoing && !t.Guard.NeverVictim)
}

// Undo ends the waits of the saga's steps before what undoes them runs: a step that came to run afterwards would not be
// undone. It blocks until they have left the queue. Steps that run already run on.
func (c *Scope) Undo(ctx workflow.Context) {
	c.undoing = true
	c.endWaits(ctx)
}

// endWaits blocks until all steps that wait have left the queue; their futures have an error then.
func (c *Scope) endWaits(ctx workflow.Context) {
	if len(c.parked) == 0 {
		return
	}
	for _, p := range slices.Clone(c.parked) {
		p.stop()
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	_ = workflow.Await(ctx, func() bool { return len(c.parked) == 0 }) // nobody cancels it
}

// EndSteps gives up what the steps of scope step keep that wait when the run ends: they have lock IDs of their own, of which
// the run's release knows nothing. No step that waits runs afterwards.
func (s *State) EndSteps(ctx workflow.Context) {
	s.ended = true
	for _, c := range s.open {
		for _, p := range slices.Clone(c.parked) {
			if p.step.Guard.Scope == protocol.ScopeStep {
				p.step.giveUp(ctx)
			}
		}
	}
}

// places are those in queues of the steps that wait when the run ends.
func (s *State) places() (places []protocol.Lease) {
	for _, c := range s.open {
		for _, p := range c.parked {
			if p.step.Guard.Scope != protocol.ScopeStep {
				places = append(places, p.step.places()...)
			}
		}
	}
	return places
}

// leavePlaces gives them up, if the run hands its locks over: the next run does not wait in them. If that fails others
// wait until the grants lapse.
func (s *State) leavePlaces(ctx workflow.Context) {
	places := s.places()
	if len(places) == 0 {
		return
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	err := locally(ctx, protocol.ActivityLeave, "leave the queues", protocol.LeaveParams{Leases: places})
	if err != nil {
		workflow.GetLogger(ctx).Warn("lockstep: places in queues were not given up, and stand until their grants lapse", "error", err)
	}
}
