package interceptors

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/internal/openrun"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/internal/sagalocks"
)

const (
	// closeWithin bounds how long Temporal is asked whether a run has closed whose function has
	// returned. Later the janitor finds out.
	closeWithin = 30 * time.Second
	// closeTimeout bounds the release.
	closeTimeout = 10 * time.Second
	// mostClosing bounds the runs that are waited for at once. What is left of more is the janitor's.
	mostClosing = 2000
)

// closer releases what a run holds, once Temporal says that the run has closed. Before that nothing
// is decided: the server refuses the workflow task that would close the run if a signal has come
// meanwhile, and the code decides again. What is not released, since this process ends or the
// database does not answer, the janitor releases.
type closer struct {
	locker locker
	waker  *waker

	mu sync.Mutex
	// closing are the runs that are waited for, by their IDs. idle, unless nil, is closed when there
	// are none.
	closing map[string]sagalocks.Closing
	idle    chan struct{}
}

func newCloser(l locker, w *waker) *closer {
	return &closer{locker: l, waker: w, closing: map[string]sagalocks.Closing{}}
}

// Close takes in that a run is about to close. A run that decides again replaces what it said.
func (c *closer) Close(of sagalocks.Closing) {
	connections := c.waker.named(of.Namespace)
	if len(connections) == 0 {
		if c.IsTest() {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			_ = c.end(ctx, Connection{NamespaceID: of.Namespace}, of, nil)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.closing[of.RunID]
	if !waits && len(c.closing) >= mostClosing {
		return
	}
	if c.closing[of.RunID] = of; !waits {
		go c.await(connections, of.RunID)
	}
}

// IsTest reports whether this process runs activities in the SDK's test environment.
func (c *closer) IsTest() bool {
	c.waker.mu.Lock()
	defer c.waker.mu.Unlock()
	return c.waker.tested
}

// await waits until a run has closed, and releases what it has left. The run is known to one of the
// connections: they may be to clusters that have a namespace of the same name.
func (c *closer) await(connections []Connection, run string) {
	defer c.forget(run)
	for _, to := range connections {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		how, err := c.closeOf(ctx, to, run)
		cancel()
		var notFound *serviceerror.NotFound
		if errors.As(err, &notFound) {
			continue
		}
		if err == nil && isOwnEnd(how) {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			err = c.end(ctx, to, c.said(run), how)
			cancel()
		}
		if err != nil {
			to.Logger.Warn("lockstep: what a workflow held that has closed was not released, and is left to the janitor", "run", run, "error", err)
		}
		return
	}
}

// isOwnEnd reports whether a run ended by its own decision. After another end, such as a reset, another
// run may go on with its locks.
func isOwnEnd(how *historypb.HistoryEvent) bool {
	switch how.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
		return true
	default:
		return false
	}
}

// handsOver reports whether a run left its locks to the run that continues it.
func handsOver(how *historypb.HistoryEvent, run string) bool {
	header := how.GetWorkflowExecutionContinuedAsNewEventAttributes().GetHeader().GetFields()[protocol.HandoverKey]
	if header == nil {
		return false
	}
	h, err := protocol.DecodeHandover(header)
	return err != nil || h.From == run // what cannot be read is the janitor's
}

// closeOf waits until a run has closed, and returns its last event; nil if it is still open.
func (c *closer) closeOf(ctx context.Context, to Connection, run string) (how *historypb.HistoryEvent, err error) {
	of := c.said(run)
	in := &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: of.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: of.WorkflowID, RunId: run},
		WaitNewEvent: true, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT, SkipArchival: true,
	}
	for ctx.Err() == nil {
		answer, err := to.Client.WorkflowService().GetWorkflowExecutionHistory(ctx, in)
		if err != nil {
			return how, err
		}
		if events := answer.GetHistory().GetEvents(); len(events) > 0 {
			return events[len(events)-1], nil
		}
		if in.NextPageToken = answer.GetNextPageToken(); len(in.NextPageToken) == 0 {
			return how, nil
		}
	}
	return how, nil
}

// said is what a run said last that it leaves.
func (c *closer) said(run string) sagalocks.Closing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing[run]
}

func (c *closer) forget(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.closing, run); len(c.closing) == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// flush blocks until no run is waited for, or ctx ends.
func (c *closer) flush(ctx context.Context) {
	c.mu.Lock()
	if len(c.closing) == 0 {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-idle:
	}
}

// end ends what a run has left that has closed with an event.
func (c *closer) end(ctx context.Context, to Connection, of sagalocks.Closing, how *historypb.HistoryEvent) error {
	run := protocol.Run{Namespace: to.NamespaceID, WorkflowID: of.WorkflowID, RunID: of.RunID}
	var errs []error
	for _, l := range of.Leaves {
		errs = append(errs, c.locker.Leave(ctx, protocol.CoreLeases(l.Leases)...))
	}
	// It may have decided so in another process, after this one had heard that it does not.
	handed := !of.HandsOver && handsOver(how, of.RunID)
	for _, p := range of.Releases {
		release := party.Release{LockID: run.LockID(), Run: run.RunID, Order: party.LastAttempt(p.Schedule)}
		switch {
		case p.Step != "":
			release.LockID = run.StepLockID(p.Step)
		case handed:
			continue
		}
		_, err := openrun.Release(ctx, c.locker, release, p.Resources)
		errs = append(errs, err)
		if p.Inherits || p.All {
			errs = append(errs, openrun.ReleaseInherited(ctx, c.locker, run, p.Resources, p.All, func() (bool, error) {
				return c.isLatest(ctx, to, run, how)
			}))
		}
	}
	return errors.Join(errs...)
}

// isLatest reports whether no later run of a closed run's workflow may go on with what earlier ones
// have left to it.
func (c *closer) isLatest(ctx context.Context, to Connection, run protocol.Run, how *historypb.HistoryEvent) (bool, error) {
	if to.Client == nil || how.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW {
		return true, nil // it would have been handed over
	}
	latest, err := openrun.Describe(ctx, to.Client.WorkflowService(), to.Namespace, run.WorkflowID, "")
	return latest.GetExecution().GetRunId() == run.RunID, err
}
