package interceptors

import (
	"context"
	"errors"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Connection is a connection to the Temporal server of a namespace.
type Connection struct {
	Client client.Client
	// Namespace is the name, and NamespaceID the ID, with which lock IDs begin.
	Namespace, NamespaceID string
	Logger                 log.Logger
	// Own is set if the connection does not belong to a worker, which may close it. No worker's connection replaces it.
	Own bool
}

const (
	// mostSenders bounds the wake-ups that are sent at the same time, and mostWakeups the wake-ups that are sent or wait.
	mostSenders = 8
	mostWakeups = 4096
	// repeatClaim is the least interval between two wake-ups for one claim, and repeatHold that for one hold. The document does not
	// show whether the waiter of a granted hold has been woken, so repeatHold is as long as the hold is reported.
	repeatClaim = 5 * time.Second
	repeatHold  = time.Minute
	// retryHolds bounds the time in which the wake-up for a hold is repeated because the server failed. After that time an attempt of
	// the workflow's activity has found the hold.
	retryHolds = 10 * time.Minute
	// wakeTimeout bounds one wake-up.
	wakeTimeout = 10 * time.Second
)

// waker completes the activities in which workflows wait, when their locks were granted. It does so in the background, and a wake-up may
// be lost: then the waiting activity's next attempt finds the grant.
type waker struct {
	locker *lockcore.Steps
	// connected, if not nil, is called with each new connection.
	connected func(Connection)

	mu sync.Mutex
	// connections are by the IDs of namespaces.
	connections map[string]Connection
	// tested is set if an activity ran in the SDK's test environment, which has no connection.
	tested bool
	// listens is set once the Locker reports wake-ups.
	listens bool
	// sent has the time of the latest wake-up for a grant, so that a grant which is reported again does not cause another one at once.
	sent map[lockcore.Wakeup]time.Time
	// senders counts the wake-ups that are sent or wait for one of the slots.
	senders background
	slots   chan struct{}
}

func newWaker(l *lockcore.Steps, connected func(Connection)) *waker {
	return &waker{
		locker: l, connected: connected, connections: map[string]Connection{}, sent: map[lockcore.Wakeup]time.Time{}, slots: make(chan struct{}, mostSenders),
	}
}

// use adds the connection of the worker that runs an activity in a namespace.
func (w *waker) use(ctx context.Context, namespaceID string) {
	c := activity.GetClient(ctx)
	if w == nil {
		return
	}
	if !currentrun.IsRealClient(c) {
		w.mu.Lock()
		w.tested = true
		w.mu.Unlock()
		return
	}
	w.connect(Connection{Client: c, Namespace: activity.GetInfo(ctx).Namespace, NamespaceID: namespaceID, Logger: activity.GetLogger(ctx)})
}

// isTest reports whether this process runs activities in the SDK's test environment.
func (w *waker) isTest() bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tested
}

// connect adds a connection. The latest connection of a worker replaces earlier ones, which may have been closed with their workers.
func (w *waker) connect(c Connection) {
	w.mu.Lock()
	known := w.connections[c.NamespaceID]
	isNew := known.Client != c.Client && (c.Own || !known.Own)
	if isNew {
		w.connections[c.NamespaceID] = c
	}
	listens := w.listens
	w.listens = true
	w.mu.Unlock()
	if !listens {
		w.locker.OnWakeup(w.enqueue)
	}
	if isNew && w.connected != nil {
		w.connected(c)
	}
}

// connectionsTo returns the connections to namespaces of a name, which several clusters may have.
func (w *waker) connectionsTo(namespace string) (connections []Connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.connections {
		if c.Namespace == namespace {
			connections = append(connections, c)
		}
	}
	return connections
}

// disconnect removes a connection, unless another one has replaced it.
func (w *waker) disconnect(c Connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.connections[c.NamespaceID].Client == c.Client {
		delete(w.connections, c.NamespaceID)
	}
}

// enqueue sends a wake-up. It does not block. It drops the wake-up if too many wait, or if one for the same grant was sent recently.
func (w *waker) enqueue(u lockcore.Wakeup) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.sent[u]) < repeatAfter(u) || !w.send(u) {
		return
	}
	if len(w.sent) >= mostWakeups {
		for old, at := range w.sent {
			if now.Sub(at) >= repeatAfter(old) {
				delete(w.sent, old)
			}
		}
	}
	w.sent[u] = now
}

// repeatAfter returns the least interval between two wake-ups for the same grant.
func repeatAfter(u lockcore.Wakeup) time.Duration {
	if u.FirstFence > 0 {
		return repeatHold
	}
	return repeatClaim
}

// send sends a wake-up in the background, unless too many wait for their turn. The first comes first.
func (w *waker) send(u lockcore.Wakeup) (sent bool) {
	if !w.senders.begin(mostWakeups) {
		return false
	}
	go func() {
		defer w.senders.end()
		w.slots <- struct{}{}
		defer func() { <-w.slots }()
		w.wake(u)
	}()
	return true
}

// nextAttempt repeats the wake-up for a hold after the server failed. A claim lapses soon if its workflow does not confirm it, but a hold
// does not.
func (w *waker) nextAttempt(u lockcore.Wakeup) {
	time.AfterFunc(repeatClaim, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if time.Since(w.sent[u]) < retryHolds {
			w.send(u)
		}
	})
}

// wake completes the activity that waits for a grant. A granted hold is its result; otherwise it has none, and the workflow's next request
// learns the outcome. If no such activity is pending, not yet or no longer, its first attempt or the workflow's next request finds the grant. If the
// run is closed, what it was granted is given back, unless an attempt that still runs has taken it.
func (w *waker) wake(u lockcore.Wakeup) {
	run, _, err := wire.ParseLockID(u.LockID)
	if err != nil || u.Run == "" || isRules(u) { // a request of a rule has attempts of its own
		return
	}
	run.RunID = u.Run
	w.mu.Lock()
	c, known := w.connections[run.Namespace]
	w.mu.Unlock()
	if !known { // the workers of that namespace wake it
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	_, err = c.Client.WorkflowService().RespondActivityTaskCompletedById(ctx, &workflowservice.RespondActivityTaskCompletedByIdRequest{
		Namespace: c.Namespace, WorkflowId: run.WorkflowID, RunId: run.RunID, ActivityId: wire.WaitID(u.Order.Schedule), Result: resultOf(u),
	})
	var notFound *serviceerror.NotFound
	switch {
	case err == nil, u.Early: // an early wake-up is repeated when the lock is granted
	case !errors.As(err, &notFound):
		c.Logger.Warn("lockstep: a workflow that waits for a lock was not woken, and will check by itself", "resource", u.Resource, "error", err)
		if u.FirstFence > 0 {
			w.nextAttempt(u)
		}
	case u.FirstFence > 0 && c.reports(ctx, run.WorkflowID, "", currentrun.HasEnded): // no run is open that could continue with its holds
		err := w.locker.Release(ctx, lockcore.Release{
			LockID: u.LockID, Run: u.Run, Resources: []string{u.Resource}, Order: u.Order, Reason: reasonEnded,
		})
		if err != nil {
			c.Logger.Warn("lockstep: a lock of a workflow that has ended was not released, and remains until the janitor releases it",
				"resource", u.Resource, "error", err)
		}
	case u.FirstFence == 0 && u.Cycle == "" && c.reports(ctx, run.WorkflowID, run.RunID, hasClosed): // a run leaves its queues before it ends
		lease := lockcore.Lease{Resource: u.Resource, LockID: u.LockID, Run: u.Run, Part: u.Part, Order: u.Order}
		if _, err := w.locker.LeaveQueue(ctx, lease); err != nil {
			c.Logger.Warn("lockstep: a lock that was granted to a closed workflow was not given back, and is blocked until the grant lapses",
				"resource", u.Resource, "error", err)
		}
	}
}

// reasonEnded is the reason for the release of a hold that was granted to a workflow. Temporal was asked after the grant: whether the workflow had ended
// before, or has taken the lock, is not known.
const reasonEnded = "its workflow has ended"

// resultOf returns the result of the activity that waits for a grant. This process may have another codec than the workflow, so it passes the
// data converter: plain JSON without a name, which every worker can read.
func resultOf(u lockcore.Wakeup) *commonpb.Payloads {
	if u.FirstFence == 0 {
		return nil
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(wire.AcquireResult{Leases: []wire.Lease{{Lease: lockcore.Lease{
		Order: u.Order, Mode: u.Mode, Fence: u.FirstFence, FirstFence: u.FirstFence, Member: u.Member,
	}}}})
	if err != nil {
		return nil // numbers and a mode are always encoded; without a result the workflow asks again
	}
	return payloads
}

// reports reports whether Temporal answers that the state of a run, or of the current run, is of a kind.
func (c Connection) reports(ctx context.Context, workflowID, runID string, kind func(enumspb.WorkflowExecutionStatus) bool) bool {
	found, err := currentrun.Describe(ctx, c.Client.WorkflowService(), c.Namespace, workflowID, runID)
	return err == nil && kind(found.GetWorkflowExecutionInfo().GetStatus())
}

func hasClosed(status enumspb.WorkflowExecutionStatus) bool { return !currentrun.IsOpen(status) }
