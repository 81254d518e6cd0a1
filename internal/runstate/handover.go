package runstate

import (
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// HandOver verifies the holds of the run, as a commit does. If none was lost, it makes the run leave them to the next one if it ends with err,
// and returns nil. If err is not a ContinueAsNewError, HandOver does nothing.
func (s *State) HandOver(ctx workflow.Context, err error) error {
	var next *workflow.ContinueAsNewError
	if !errors.As(err, &next) {
		return nil
	}
	err = s.verifyAged(ctx, ctx, func() []*Scope { return s.open })
	if err == nil {
		s.handsOver = next
	}
	return err
}

// HandsOver reports whether a function that returns err leaves its locks to the next run; see [State.HandOver].
func HandsOver(ctx workflow.Context, err error) bool {
	s := StateFrom(ctx)
	var next *workflow.ContinueAsNewError
	return s != nil && errors.As(err, &next) && next == s.handsOver
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
		if !isRelease || size+e.size > maxPayload {
			continue // those locks remain until the end of the next run
		}
		p.Handed, p.Inherits = true, false
		due, size = append(due, p), size+e.size
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
		size := 0
		for _, name := range r.Resources {
			size += use{Use: wire.Use{Resource: name}}.size()
		}
		s.addEnding(ctx, own{name: wire.ActivityRelease, summary: "release what the run before has left", params: r, size: size})
	}
	return nil
}
