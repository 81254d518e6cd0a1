package run

import (
	"errors"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// Header is the header of a run's start, of a child's or of a run that continues another.
type Header = map[string]*commonpb.Payload

// Begin takes in what the run was started with: its party, and the mark of the run before it. What cannot be read is an
// error.
func (s *State) Begin(ctx workflow.Context, header Header) error {
	info := workflow.GetInfo(ctx)
	s.base, s.wasReset = ctx, info.OriginalRunID != "" && info.OriginalRunID != info.WorkflowExecution.RunID
	if p := header[protocol.OwnerKey]; p != nil {
		owner, err := protocol.DecodeOwner(p)
		if err != nil {
			return err
		}
		s.owner = owner
	}
	p := header[protocol.HandoverKey]
	if p == nil {
		return nil
	}
	h, err := protocol.DecodeHandover(p)
	if err != nil {
		return err
	}
	// The server gives a run's header to its retries and its next runs by a cron schedule too.
	if h.From != "" && h.From == info.ContinuedExecutionRunID {
		s.continues, s.started = true, h.Started
	}
	return nil
}

// before is the run that was reset, if this one was made so.
func (s *State) before(ctx workflow.Context) string {
	if !s.wasReset {
		return ""
	}
	return workflow.GetInfo(ctx).OriginalRunID
}

// ancestors are the workflow IDs of a child's parent and root.
func ancestors(ctx workflow.Context) (ids []string) {
	info := workflow.GetInfo(ctx)
	for _, of := range []*workflow.Execution{info.ParentWorkflowExecution, info.RootWorkflowExecution} {
		if of != nil && of.ID != info.WorkflowExecution.ID && !slices.Contains(ids, of.ID) {
			ids = append(ids, of.ID)
		}
	}
	return ids
}

// begun is when the first of the runs began that go on with each other's holds.
func (s *State) begun(ctx workflow.Context) time.Time {
	if !s.started.IsZero() {
		return s.started
	}
	return workflow.GetInfo(ctx).WorkflowStartTime.UTC()
}

// MarkHandover asks that the run which ends with err hands its locks over. Where err does not continue as new, it does
// nothing.
func MarkHandover(err error) error {
	var again *workflow.ContinueAsNewError
	if !errors.As(err, &again) {
		return nil
	}
	p, encodeErr := protocol.EncodeHandover(protocol.Handover{})
	if encodeErr != nil {
		return encodeErr
	}
	if again.Header == nil {
		again.Header = &commonpb.Header{}
	}
	if again.Header.Fields == nil {
		again.Header.Fields = Header{}
	}
	again.Header.Fields[protocol.HandoverKey] = p
	return nil
}

// HandsOver tells whether a function that ends with err hands its locks over; see [MarkHandover].
func HandsOver(err error) bool {
	var again *workflow.ContinueAsNewError
	return errors.As(err, &again) && again.Header.GetFields()[protocol.HandoverKey] != nil
}

// HandOver leaves, at the end of a run, what it holds to the run that continues it, if err asks for that: it marks that run,
// and extends the holds once. Then there is nothing to release. It returns err, or the error for which the run cannot
// continue: then what it holds is to be released.
func (s *State) HandOver(ctx workflow.Context, err error) (done bool, out error) {
	var again *workflow.ContinueAsNewError
	if !HandsOver(err) || !errors.As(err, &again) {
		return false, err
	}
	s.leavePlaces(ctx)
	p, failed := protocol.EncodeHandover(protocol.Handover{From: workflow.GetInfo(ctx).WorkflowExecution.RunID, Started: s.begun(ctx)})
	if failed == nil {
		failed = s.extend(ctx, s.held())
	}
	if failed != nil {
		return false, failed
	}
	again.Header.Fields[protocol.HandoverKey] = p
	return true, err
}

// extend extends holds once.
func (s *State) extend(ctx workflow.Context, held names) error {
	if len(held) == 0 {
		return nil
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	params := protocol.KeepParams{Resources: held, Once: true, HandOver: true, Inherits: s.wasReset, Collection: s.collection.Known()}
	summary := protocol.Cut("hand over "+strings.Join(held, ", "), 120)
	err := locally(ctx, protocol.ActivityKeep, summary, params)
	if err != nil && askAgain(err) {
		err = s.ordinarily(ctx, protocol.ActivityKeep, summary, releaseTimeout, params)
	}
	return protocol.TypedError(err)
}

// Continue writes what every run that continues this one has to know into its header.
func (s *State) Continue(header Header) error {
	if s.owner.IsZero() || header == nil {
		return nil
	}
	return writeOwner(header, s.owner)
}

// Adopt writes the party that a child workflow started under ctx inherits into its header, where ctx says so.
func Adopt(ctx workflow.Context, header Header) error {
	if owner := ownerFrom(ctx); !owner.IsZero() && header != nil {
		return writeOwner(header, owner)
	}
	return nil
}

func writeOwner(header Header, owner protocol.Owner) error {
	owner.Name = protocol.Cut(owner.Name, protocol.MaxName)
	p, err := protocol.EncodeOwner(owner)
	if err != nil {
		return err
	}
	header[protocol.OwnerKey] = p
	return nil
}
