package sagalocks

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// ending is what a run ends in the database without waiting for it. It is sent by an activity, so
// never before the workflow task is recorded in which it was decided: code that runs again, because
// that task was refused or lost, decides under its locks.
type ending struct {
	name, summary string
	// params are protocol.ReleaseParams or protocol.LeaveParams.
	params any
	// sent says that the activity is scheduled.
	sent bool
}

// Closing is what a run leaves to be ended when it has closed, since no activity of it runs then.
type Closing struct {
	// Namespace is the name of the run's namespace.
	Namespace, WorkflowID, RunID string
	// HandsOver says that it leaves its holds to the run that continues it.
	HandsOver bool
	// Releases and Leaves are what its activities would have been called with.
	Releases []protocol.ReleaseParams
	Leaves   []protocol.LeaveParams
}

// Closer ends what runs leave.
type Closer interface {
	// Close takes in what is to be ended when the run has closed.
	Close(of Closing)
	// IsTest reports whether the run is in the SDK's test environment, in which activities run on when it has
	// ended.
	IsTest() bool
}

// end has something of the run ended once that is recorded.
func (s *State) end(name, summary string, params any) {
	s.endings = append(s.endings, &ending{name: name, summary: summary, params: params})
	s.endSoon()
}

// endSoon sends what is to be ended: in this workflow task, if the run does not close in it.
func (s *State) endSoon() {
	if s.ended {
		return
	}
	ctx, _ := workflow.NewDisconnectedContext(s.base)
	workflow.GoNamed(ctx, "lockstep-release", func(ctx workflow.Context) {
		round := 0
		_ = workflow.Await(ctx, func() bool { round++; return round > 1 }) // all others run once: the run may close by that
		if s.ended {
			return
		}
		if free := s.free(); len(free) > 0 {
			s.endings = append(s.endings, &ending{
				name: protocol.ActivityRelease, summary: "release " + strings.Join(free.names(), ", "), params: s.release(free),
			})
		}
		for _, e := range s.endings {
			if !e.sent {
				e.sent = true
				s.send(ctx, e)
			}
		}
	})
}

// send schedules an activity that is tried until it has succeeded.
func (s *State) send(ctx workflow.Context, e *ending) {
	future := s.schedule(ctx, workflow.ActivityOptions{Summary: protocol.Cut(e.summary, 120), StartToCloseTimeout: attemptTimeout}, e.name, e.params)
	s.When(future, func(ctx workflow.Context) {
		if err := future.Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Error("lockstep: locks were not released: they stand until the workflow ends, and then until the janitor releases "+
				"them or their HoldTTL is over", "what", e.summary, "error", err)
		}
		s.endings = slices.DeleteFunc(s.endings, func(o *ending) bool { return o == e })
	})
}

// awaitEndings blocks until what is to be ended has ended, or ctx is cancelled.
func (s *State) awaitEndings(ctx workflow.Context) error {
	return workflow.Await(ctx, func() bool { return len(s.endings) == 0 && len(s.freeable()) == 0 })
}

// free takes out what is due and no open scope uses. What one uses is released with that one.
func (s *State) free() uses {
	free := s.freeable()
	s.due = slices.DeleteFunc(s.due, func(use protocol.Use) bool { return free.has(use.Resource) })
	return free
}

func (s *State) freeable() uses {
	return slices.DeleteFunc(slices.Clone(s.due), func(use protocol.Use) bool {
		return slices.ContainsFunc(s.open, func(o *Scope) bool { return o.uses.has(use.Resource) })
	})
}

// release is the release of what was asked for until now.
func (s *State) release(free uses) protocol.ReleaseParams {
	return protocol.ReleaseParams{
		Resources: free.names(), Schedule: s.schedules, Inherits: s.wasReset || s.continues, Collection: s.collection.Known(),
	}
}

// close has free, and what has not been ended yet, ended once the run has closed; and unless it hands
// over, also what earlier runs have left to this one on any resource.
func (s *State) close(ctx workflow.Context, free uses, handsOver bool) {
	if s.closer == nil || workflow.IsReplaying(ctx) {
		return
	}
	if s.closer.IsTest() {
		ctx, _ := workflow.NewDisconnectedContext(ctx)
		_ = workflow.Await(ctx, func() bool { return !slices.ContainsFunc(s.endings, func(e *ending) bool { return e.sent }) }) // it is never cancelled
	}
	info := workflow.GetInfo(ctx)
	c := Closing{
		Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID, HandsOver: handsOver,
	}
	release := s.release(free)
	release.All = s.continues && !handsOver
	if len(free) > 0 || release.All {
		c.Releases = append(c.Releases, release)
	}
	for _, e := range s.endings {
		switch params := e.params.(type) {
		case protocol.ReleaseParams:
			c.Releases = append(c.Releases, params)
		case protocol.LeaveParams:
			c.Leaves = append(c.Leaves, params)
		}
	}
	if len(c.Releases) > 0 || len(c.Leaves) > 0 {
		s.closer.Close(c)
	}
}

// verify makes sure that what was used is held, and has been held since.
func (s *State) verify(ctx workflow.Context, timeout time.Duration, used uses) error {
	if len(used) == 0 {
		return nil
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	err := s.run(ctx, task{
		name: protocol.ActivityRelease, summary: "check " + strings.Join(used.names(), ", "), timeout: timeout, params: protocol.ReleaseParams{
			Used: used, Inherits: s.wasReset || s.continues, Before: s.before(ctx), Collection: s.collection.Known(),
		},
	})
	lock := protocol.LockError(err)
	switch {
	case err == nil:
		return nil
	case lock != nil:
		err = protocol.NewWaitError(lock, false)
	default:
		err = protocol.NewWaitUnavailable("lockstep: whether locks were lost is not known: "+message(err), false)
	}
	if !errors.Is(lock, lockcore.ErrLost) {
		workflow.GetLogger(ctx).Error("lockstep: it is not known whether locks were lost", "resources", used.names(), "error", err)
	}
	return err
}
