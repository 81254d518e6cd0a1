package interceptors

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/runstate"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

const (
	// closeWithin bounds the wait for a run to close after its function has returned. The janitor finds runs that close later.
	closeWithin = 30 * time.Second
	// closeTimeout bounds the release.
	closeTimeout = 10 * time.Second
	// mostClosing bounds the number of runs that are waited for at once. The janitor releases the locks of more.
	mostClosing = 2000
)

// closer releases the locks of a run after Temporal has recorded that the run has closed: the server refuses the workflow task that closes a run
// if a signal has arrived, and then the workflow code runs again and needs its locks. If this process dies, the janitor releases the locks.
type closer struct {
	locker locker
	waker  *waker

	waits background
	mu    sync.Mutex
	// closing has the runs that are waited for, by their IDs. unconnected has those of namespaces without a connection so far.
	closing     map[string]runstate.Closing
	unconnected []runstate.Closing
}

func newCloser(l locker, w *waker) *closer {
	return &closer{locker: l, waker: w, closing: map[string]runstate.Closing{}}
}

// Close waits in the background until a run has closed, and then releases its locks. In the SDK's test environment it releases them at
// once.
func (c *closer) Close(of runstate.Closing) {
	if len(c.waker.connectionsTo(of.Namespace)) == 0 && c.IsTest() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = c.end(ctx, Connection{NamespaceID: of.Namespace, Logger: log.NewStructuredLogger(slog.Default())}, of, nil)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	connections := c.waker.connectionsTo(of.Namespace) // with the mutex: a connection that is added later finds the run
	if len(connections) == 0 {
		if len(c.unconnected) < mostClosing {
			c.unconnected = append(c.unconnected, of)
		}
		return
	}
	_, waits := c.closing[of.RunID]
	if !waits && !c.waits.begin(mostClosing) {
		return
	}
	if c.closing[of.RunID] = of; !waits {
		go c.await(connections, of.RunID)
	}
}

// connected begins to wait for the runs that have returned before there was a connection to their namespace.
func (c *closer) connected() {
	c.mu.Lock()
	all := c.unconnected
	c.unconnected = nil
	c.mu.Unlock()
	for _, of := range all {
		c.Close(of)
	}
}

// IsTest reports whether this process runs activities in the SDK's test environment.
func (c *closer) IsTest() bool { return c.waker.isTest() }

// await waits until a run has closed, and carries out its Closing. The connections may lead to several clusters, of which one knows the run.
func (c *closer) await(connections []Connection, run string) {
	defer c.forget(run)
	for _, to := range connections {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		last, err := c.closeOf(ctx, to, run)
		inTime := ctx.Err() == nil
		cancel()
		if !inTime && (err == nil || isTimeout(err)) { // the run is open: the server refused the task that would have closed it
			return
		}
		if _, notFound := errors.AsType[*serviceerror.NotFound](err); notFound {
			continue
		}
		if err == nil && isOwnEnd(last) {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			err = c.end(ctx, to, c.latest(run), last)
			cancel()
		}
		if err != nil {
			to.Logger.Warn("lockstep: the locks of a closed workflow were not released, and the janitor will release them", "run", run, "error", err)
		}
		return
	}
}

// isTimeout reports whether a call ended because its time was over.
func isTimeout(err error) bool {
	var late *serviceerror.DeadlineExceeded
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late)
}

// isOwnEnd reports whether the workflow code ended the run with its last event. After any other end, such as a reset, another run may
// continue with its locks.
func isOwnEnd(last *historypb.HistoryEvent) bool {
	switch last.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
		return true
	default:
		return false
	}
}

// handsOver reports whether a run handed its locks over to the run that continues it.
func handsOver(last *historypb.HistoryEvent, run string) bool {
	header := last.GetWorkflowExecutionContinuedAsNewEventAttributes().GetHeader().GetFields()[wire.HandoverKey]
	if header == nil {
		return false
	}
	h, err := wire.DecodeHandover(header)
	return err != nil || h.From == run // if the header cannot be read, the janitor releases what was not handed over
}

// closeOf waits until a run has closed, and returns its last event; nil if it is still open.
func (c *closer) closeOf(ctx context.Context, to Connection, run string) (*historypb.HistoryEvent, error) {
	filter := enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
	last := to.Client.GetWorkflowHistory(ctx, c.latest(run).WorkflowID, run, true, filter)
	if !last.HasNext() {
		return nil, nil //nolint:nilnil // it is open
	}
	return last.Next()
}

// latest returns the latest Closing of a run, which replaces earlier ones.
func (c *closer) latest(run string) runstate.Closing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing[run]
}

func (c *closer) forget(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.closing, run)
	c.waits.end()
}

// end carries out the Closing of a run that has closed with the event last.
func (c *closer) end(ctx context.Context, to Connection, of runstate.Closing, last *historypb.HistoryEvent) error {
	run := wire.Run{Namespace: to.NamespaceID, WorkflowID: of.WorkflowID, RunID: of.RunID}
	var errs []error
	for _, l := range of.Leaves {
		errs = append(errs, c.locker.Leave(ctx, wire.CoreLeases(l.Leases)...))
	}
	// The workflow code may have run again in another process, which decided what is handed over. The next run releases the rest.
	handed := handsOver(last, of.RunID)
	// The next run, if this one continued as new, has inherited nothing of what is released here. What it holds is its own.
	next := last.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
	for _, p := range of.Releases {
		if handed && p.Step == "" {
			continue
		}
		errs = append(errs, currentrun.Release(ctx, c.locker, to.Logger, run, p, next, func() (bool, error) {
			if to.Client == nil { // in the test environment no run follows another
				return true, nil
			}
			latest, err := currentrun.Describe(ctx, to.Client.WorkflowService(), to.Namespace, run.WorkflowID, "")
			current := latest.GetWorkflowExecutionInfo().GetExecution().GetRunId()
			return err == nil && (current == run.RunID || current == next), err
		}))
	}
	return errors.Join(errs...)
}
