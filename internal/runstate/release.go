package runstate

import (
	"errors"
	"fmt"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// ending is a release, or a leave, that the workflow does not wait for. An activity carries it out, so it happens only after Temporal has
// recorded the workflow task that decided it.
type ending struct {
	own
	// ctx is the context of the scope, or of the step.
	ctx workflow.Context
	// sent is set once the activity is scheduled.
	sent bool
}

// due are resources of a scope that has closed. They are released once no open scope uses them.
type due struct {
	ctx  workflow.Context
	uses uses
	// committed is set if the scope has committed: the release reports what was lost before.
	committed bool
}

// Closing lists the releases and leaves that remain after a run has closed, when it can run no activity.
type Closing struct {
	// Namespace is the name of the run's namespace.
	Namespace, WorkflowID, RunID string
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

// addDue adds the resources of a scope that has closed. One that is due already is released once, as one of a committed scope if either has
// committed.
func (s *State) addDue(d due) {
	for i := range s.due {
		from, other := &s.due[i].uses, d.uses
		if s.due[i].committed && !d.committed {
			from, other = &d.uses, *from
		}
		*from = slices.DeleteFunc(slices.Clone(*from), func(u use) bool { return other.has(u.Resource) })
	}
	s.due = append(s.due, d)
}

// addEnding schedules a release or a leave.
func (s *State) addEnding(ctx workflow.Context, o own) {
	s.endings = append(s.endings, &ending{own: o, ctx: ctx})
	s.sendEndings()
}

// sendEndings schedules all endings, and the releases of what is due, in this workflow task, or in later ones as far as this one has no room
// for them. It schedules nothing if the run closes in the same task.
func (s *State) sendEndings() {
	s.additions++
	if s.ended || s.sending {
		return
	}
	s.sending = true
	ctx, _ := workflow.NewDisconnectedContext(s.base)
	workflow.GoNamed(ctx, "lockstep-release", func(ctx workflow.Context) {
		seen := 0
		// All other coroutines run once after the latest addition, because one of them may end the run.
		_ = workflow.Await(ctx, func() bool {
			before := seen
			seen = s.additions
			return s.ended || before == seen
		})
		s.endings = append(s.endings, s.takeReleasable()...)
		for _, e := range slices.Clone(s.endings) {
			if e.sent {
				continue
			}
			_ = workflow.Await(ctx, func() bool { return s.ended || s.admits(ctx, e.size()) })
			if s.ended {
				return
			}
			s.send(e)
		}
		s.sending = false
		if slices.ContainsFunc(s.due, s.isReleasable) || slices.ContainsFunc(s.endings, func(e *ending) bool { return !e.sent }) {
			s.sendEndings() // they were added meanwhile
		}
	})
}

// send schedules the activity of an ending.
func (s *State) send(e *ending) {
	e.sent = true
	future, _ := s.schedule(e.ctx, e.own)
	s.whenReady(future, func(ctx workflow.Context) {
		err := future.Get(ctx, nil)
		if err != nil && !isFinal(e.name, err) { // an operator has failed it
			workflow.GoNamed(ctx, "lockstep-release", func(ctx workflow.Context) {
				_ = workflow.Sleep(ctx, operatorPause)
				if !s.ended {
					s.send(e)
				}
			})
			return
		}
		if err != nil {
			workflow.GetLogger(ctx).Error("lockstep: locks were not released: they remain until the workflow ends, and then until the janitor "+
				"releases them or their HoldTTL ends", "activity", e.name, "resources", e.resources, "error", err)
		}
		s.endings = slices.DeleteFunc(s.endings, func(o *ending) bool { return o == e })
	})
}

// awaitReleased blocks until no ending of these resources is in progress, and none is due, or ctx is cancelled. It does not wait for
// resources that open scopes use.
func (s *State) awaitReleased(ctx workflow.Context, of uses) error {
	isDue := func(u use) bool { return of.has(u.Resource) && !s.inUse(u) }
	return workflow.Await(ctx, func() bool {
		return !slices.ContainsFunc(s.endings, func(e *ending) bool { return slices.ContainsFunc(e.resources, of.has) }) &&
			!slices.ContainsFunc(s.due, func(d due) bool { return slices.ContainsFunc(d.uses, isDue) })
	})
}

// inUse reports whether an open scope uses a resource. It is then released with that scope.
func (s *State) inUse(u use) bool {
	return slices.ContainsFunc(s.open, func(o *Scope) bool { return o.uses.has(u.Resource) })
}

func (s *State) isReleasable(d due) bool {
	return slices.ContainsFunc(d.uses, func(u use) bool { return !s.inUse(u) })
}

// takeReleasable takes those of the due resources that no open scope uses, and returns their releases.
func (s *State) takeReleasable() (endings []*ending) {
	for i := range s.due {
		d := &s.due[i]
		free := slices.DeleteFunc(slices.Clone(d.uses), s.inUse)
		d.uses = slices.DeleteFunc(slices.Clone(d.uses), func(u use) bool { return !s.inUse(u) })
		for _, o := range split(free, own{name: wire.ActivityRelease, purpose: "release ", overhead: useOverhead}, func(piece uses) any {
			p := s.releaseParams(piece.names())
			p.Committed = d.committed
			return p
		}) {
			endings = append(endings, &ending{ctx: d.ctx, own: o})
		}
	}
	s.due = slices.DeleteFunc(s.due, func(d due) bool { return len(d.uses) == 0 })
	return endings
}

// releaseParams returns the input of a release of everything requested so far.
func (s *State) releaseParams(names []string) wire.ReleaseParams {
	return wire.ReleaseParams{
		Resources: names, Schedule: s.schedules, Inherits: s.wasReset || s.continues, Run: runID(s.base), Collection: s.collectionID(),
	}
}

// close passes the endings that are not done yet to the Closer. Unless the run hands over, the Closer also releases what earlier runs of the
// workflow still hold.
func (s *State) close(ctx workflow.Context) {
	if s.closer == nil || workflow.IsReplaying(ctx) {
		return
	}
	if s.closer.IsTest() {
		ctx, _ := workflow.NewDisconnectedContext(ctx)
		_ = workflow.Await(ctx, func() bool { return !slices.ContainsFunc(s.endings, func(e *ending) bool { return e.sent }) }) // it is never cancelled
	}
	info := workflow.GetInfo(ctx)
	c := Closing{Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID}
	for _, e := range s.endings {
		switch params := e.params.(type) {
		case wire.ReleaseParams:
			c.Releases = append(c.Releases, params)
		case wire.LeaveParams:
			c.Leaves = append(c.Leaves, params)
		}
	}
	if last := s.releaseParams(nil); last.Inherits && s.handsOver == nil {
		last.All = true
		c.Releases = append(c.Releases, last)
	}
	if len(c.Releases) > 0 || len(c.Leaves) > 0 {
		s.closer.Close(c)
	}
}

// HandOver verifies the holds of the run, as a commit does. If none was lost, it makes the run leave them to the next one if it ends with err,
// and returns nil. If err is not a ContinueAsNewError, HandOver does nothing.
func (s *State) HandOver(ctx workflow.Context, err error) error {
	next, ok := errors.AsType[*workflow.ContinueAsNewError](err)
	if !ok {
		return nil
	}
	err = s.verifyAged(ctx, ctx, nil)
	if err == nil {
		s.handsOver = next
	}
	return err
}

// HandsOver reports whether a function that returns err leaves its locks to the next run; see [State.HandOver].
func HandsOver(ctx workflow.Context, err error) bool {
	s := StateFrom(ctx)
	next, ok := errors.AsType[*workflow.ContinueAsNewError](err)
	return s != nil && ok && next == s.handsOver
}

// writeHandover writes the headers of the next run: the only record that the holds are left to it, and the releases that this run has decided and
// the next one sends. It panics if they cannot be encoded.
//
//workflowcheck:ignore an encryption may be random: replay does not compare headers
func (s *State) writeHandover(ctx workflow.Context) {
	if s.handsOver.Header == nil {
		s.handsOver.Header = &commonpb.Header{}
	}
	if s.handsOver.Header.Fields == nil {
		s.handsOver.Header.Fields = Header{}
	}
	header := s.handsOver.Header.Fields
	mark, err := wire.EncodeHandover(wire.Handover{From: runID(ctx), Started: s.started})
	if err != nil {
		panic(err)
	}
	header[wire.HandoverKey] = mark
	due, size := []wire.ReleaseParams{}, 0
	for _, e := range s.endings {
		p, isRelease := e.params.(wire.ReleaseParams)
		if !isRelease || size+e.size() > maxPayload {
			continue // those locks remain until the end of the next run
		}
		p.Handed, p.Inherits = true, false
		due, size = append(due, p), size+e.size()
	}
	if delete(header, wire.DueKey); len(due) == 0 {
		return
	}
	info := workflow.GetInfo(ctx)
	if header[wire.DueKey], err = wire.EncodeHeader(s.guards, info.Namespace, info.WorkflowExecution.ID, due); err != nil {
		panic(err)
	}
}

// inherit schedules the releases that the run before has decided.
//
//workflowcheck:ignore it depends on the header alone, or fails the workflow task
func (s *State) inherit(ctx workflow.Context, header Header) error {
	p := header[wire.DueKey]
	if p == nil {
		return nil
	}
	info := workflow.GetInfo(ctx)
	due, err := wire.DecodeHeader[[]wire.ReleaseParams](s.guards, info.Namespace, info.WorkflowExecution.ID, p, wire.DueKey)
	if err != nil {
		return fmt.Errorf("lockstep: read the locks that the run before has left to release: %w", err)
	}
	for _, r := range due {
		s.addEnding(ctx, own{
			name: wire.ActivityRelease, purpose: "release what the run before has left: ", params: r, resources: r.Resources, overhead: useOverhead,
		})
	}
	return nil
}
