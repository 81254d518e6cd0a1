package runstate

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// ending is a release, or a leave, that the workflow does not wait for. An activity carries it out, so it happens only after Temporal has
// recorded the workflow task that decided it. If that task is refused or lost, the code runs again and still holds its locks.
type ending struct {
	name, summary string
	// params is a wire.ReleaseParams or a wire.LeaveParams.
	params any
	// sent is set once the activity is scheduled.
	sent bool
}

// Closing lists the releases and leaves that remain after a run has closed, when it can run no activity.
type Closing struct {
	// Namespace is the name of the run's namespace.
	Namespace, WorkflowID, RunID string
	// HandsOver is set if the run continues as new and hands its holds over.
	HandsOver bool
	// Releases and Leaves are inputs of the activities of these names.
	Releases []wire.ReleaseParams
	Leaves   []wire.LeaveParams
}

// Closer releases the locks of runs that have closed.
type Closer interface {
	// Close waits in the background until the run has closed, and then carries out the Closing. A later call for the same run replaces
	// the earlier one.
	Close(of Closing)
	// IsTest reports whether the run is in the SDK's test environment, whose activities must not outlive the workflow.
	IsTest() bool
}

// addEnding schedules a release or a leave.
func (s *State) addEnding(name, summary string, params any) {
	s.endings = append(s.endings, &ending{name: name, summary: summary, params: params})
	s.sendEndings()
}

// sendEndings schedules all endings in this workflow task, and releases what is due, unless the run closes in the same task.
func (s *State) sendEndings() {
	if s.ended {
		return
	}
	ctx, _ := workflow.NewDisconnectedContext(s.base)
	workflow.GoNamed(ctx, "lockstep-release", func(ctx workflow.Context) {
		round := 0
		// All other coroutines run once first, because one of them may end the run.
		_ = workflow.Await(ctx, func() bool { round++; return round > 1 })
		if s.ended {
			return
		}
		if free := s.takeReleasable(); len(free) > 0 {
			s.endings = append(s.endings, &ending{
				name: wire.ActivityRelease, summary: "release " + strings.Join(free.names(), ", "), params: s.releaseParams(free),
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

// send schedules the activity of an ending, which Temporal retries until it succeeds.
func (s *State) send(ctx workflow.Context, e *ending) {
	future := s.schedule(ctx, workflow.ActivityOptions{Summary: wire.Cut(e.summary, 120), StartToCloseTimeout: attemptTimeout}, e.name, e.params)
	s.WhenReady(future, func(ctx workflow.Context) {
		if err := future.Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Error("lockstep: locks were not released: they remain until the workflow ends, and then until the janitor "+
				"releases them or their HoldTTL ends", "what", e.summary, "error", err)
		}
		s.endings = slices.DeleteFunc(s.endings, func(o *ending) bool { return o == e })
	})
}

// awaitEndings blocks until all endings are done, or ctx is cancelled.
func (s *State) awaitEndings(ctx workflow.Context) error {
	return workflow.Await(ctx, func() bool { return len(s.endings) == 0 && len(s.releasable()) == 0 })
}

// releasable returns the due resources that no open scope uses. The others are released with the scope that uses them.
func (s *State) releasable() uses {
	return slices.DeleteFunc(slices.Clone(s.due), func(use wire.Use) bool {
		return slices.ContainsFunc(s.open, func(o *Scope) bool { return o.uses.has(use.Resource) })
	})
}

// takeReleasable removes the releasable resources from those that are due, and returns them.
func (s *State) takeReleasable() uses {
	free := s.releasable()
	s.due = slices.DeleteFunc(s.due, func(use wire.Use) bool { return free.has(use.Resource) })
	return free
}

// releaseParams returns the input of a release of everything requested so far.
func (s *State) releaseParams(free uses) wire.ReleaseParams {
	return wire.ReleaseParams{
		Resources: free.names(), Schedule: s.schedules, Inherits: s.wasReset || s.continues, Run: runID(s.base), Collection: s.collectionID(),
	}
}

// close passes the resources in free, and the endings that are not done yet, to the Closer. Unless the run hands over, the Closer also
// releases what earlier runs of the workflow still hold.
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
	release := s.releaseParams(free)
	release.All = release.Inherits && !handsOver
	if len(free) > 0 || release.All {
		c.Releases = append(c.Releases, release)
	}
	for _, e := range s.endings {
		switch params := e.params.(type) {
		case wire.ReleaseParams:
			c.Releases = append(c.Releases, params)
		case wire.LeaveParams:
			c.Leaves = append(c.Leaves, params)
		}
	}
	if len(c.Releases) > 0 || len(c.Leaves) > 0 {
		s.closer.Close(c)
	}
}

// verify returns an error unless the run still holds, and has held without a gap, what its steps used.
func (s *State) verify(ctx workflow.Context, timeout time.Duration, used uses) error {
	if len(used) == 0 {
		return nil
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	err := s.runLocalFirst(ctx, wire.ActivityRelease, "check "+strings.Join(used.names(), ", "), timeout, wire.ReleaseParams{
		Used: used, Inherits: s.wasReset, Before: s.before(ctx), Collection: s.collectionID(),
	})
	lock := wire.LockError(err)
	switch {
	case err == nil:
		return nil
	case lock != nil:
		err = wire.NewWaitError(lock, false)
	default:
		err = wire.NewWaitUnavailable("lockstep: whether locks were lost is not known: "+message(err), false)
	}
	if !errors.Is(lock, lockcore.ErrLost) {
		workflow.GetLogger(ctx).Error("lockstep: it is not known whether locks were lost", "resources", used.names(), "error", err)
	}
	return err
}
