package interceptors

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// waker completes the activities by which workflows wait, when their turn has come. It does so in the background and
// as well as it can: a wake-up that is lost is repaired by the waiting activity's next attempt.
type waker struct {
	locker *party.Locker
	// connected, unless nil, is called with each new connection.
	connected func(Connection)

	mu sync.Mutex
	// temporal are the connections by the IDs of namespaces.
	temporal map[string]Connection
	// tested says that an activity ran in the SDK's test environment, which has no connection.
	tested bool
	// listens says that the waker hears of turns.
	listens bool
	// told is when a wake-up was sent, so that a turn that is seen again is not told again at once.
	told  map[party.Wakeup]time.Time
	queue []party.Wakeup
	// sends are the goroutines that send.
	sends background
}

// Connection is a way to the Temporal server of a namespace.
type Connection struct {
	Client client.Client
	// Namespace is the name, and NamespaceID the ID, with which lock IDs begin.
	Namespace, NamespaceID string
	Logger                 log.Logger
	// Own says that it is not a worker's, which may be closed with the worker: no worker's replaces it.
	Own bool
}

const (
	// mostSenders and mostTurns bound what is sent at once, and what waits for it.
	mostSenders = 8
	mostTurns   = 4096
	// tellAgain is the least time between two wake-ups for one claim, and tellHoldAgain that for one hold.
	// The document does not show whether the waiter of a granted hold has been woken, so tellHoldAgain is
	// as long as the hold is reported.
	tellAgain     = 5 * time.Second
	tellHoldAgain = time.Minute
	// retryHolds bounds the time in which the wake-up for a hold is repeated because the server failed.
	// After that time the workflow's activity has found the hold in an attempt of its own.
	retryHolds = 10 * time.Minute
	// wakeTimeout bounds one wake-up.
	wakeTimeout = 10 * time.Second
)

func newWaker(l *party.Locker, connected func(Connection)) *waker {
	return &waker{locker: l, connected: connected, told: map[party.Wakeup]time.Time{}, temporal: map[string]Connection{}}
}

// use takes the connection of the worker that runs an activity in a namespace.
func (w *waker) use(ctx context.Context, namespaceID string) {
	c := activity.GetClient(ctx)
	if w == nil {
		return
	}
	if !currentrun.Connects(c) {
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

// connect wakes workflows of a namespace by a connection from now on. Among those of workers the latest one counts: an
// earlier worker's may have been closed with it.
func (w *waker) connect(c Connection) {
	w.mu.Lock()
	known := w.temporal[c.NamespaceID]
	isNew := known.Client != c.Client && (c.Own || !known.Own)
	if isNew {
		w.temporal[c.NamespaceID] = c
	}
	listens := w.listens
	w.listens = true
	w.mu.Unlock()
	if !listens {
		w.locker.OnWakeup(w.turn)
	}
	if isNew && w.connected != nil {
		w.connected(c)
	}
}

// named are the connections to namespaces of a name, which clusters may share.
func (w *waker) named(namespace string) (connections []Connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.temporal {
		if c.Namespace == namespace {
			connections = append(connections, c)
		}
	}
	return connections
}

// disconnect forgets a connection, unless another one has replaced it.
func (w *waker) disconnect(c Connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.temporal[c.NamespaceID].Client == c.Client {
		delete(w.temporal, c.NamespaceID)
	}
}

// turn queues a wake-up. It does not block, and drops what is too much.
func (w *waker) turn(t party.Wakeup) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.told[t]) < pauseAfter(t) || len(w.queue) >= mostTurns {
		return
	}
	if len(w.told) >= mostTurns {
		for old, at := range w.told {
			if now.Sub(at) >= pauseAfter(old) {
				delete(w.told, old)
			}
		}
	}
	w.told[t] = now
	w.enqueue(t)
}

// pauseAfter returns the least time between two wake-ups for the same turn.
func pauseAfter(t party.Wakeup) time.Duration {
	if t.HoldFence > 0 {
		return tellHoldAgain
	}
	return tellAgain
}

// enqueue sends a wake-up soon. The mutex is held.
func (w *waker) enqueue(t party.Wakeup) {
	w.queue = append(w.queue, t)
	if w.sends.begin(mostSenders) {
		go w.send()
	}
}

// again repeats the wake-up for a hold after the server failed. A claim lapses soon if its workflow does
// not confirm it, but a hold does not.
func (w *waker) again(t party.Wakeup) {
	time.AfterFunc(tellAgain, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if time.Since(w.told[t]) < retryHolds && len(w.queue) < mostTurns {
			w.enqueue(t)
		}
	})
}

func (w *waker) send() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.sends.end()
			w.mu.Unlock()
			return
		}
		t := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		w.wake(t)
	}
}

// wake completes the activity that waits for a turn. It has no result, and what became of the request is told to the next that
// asks; if the request was granted a hold, the result names it. This process may have another data converter than the workflow,
// which asks again if it cannot read the result. One of these happens:
//  1. it is completed, whether it runs or waits for its next attempt;
//  2. there is none yet, or none any more: its first attempt, or what came in between, sees the turn;
//  3. its workflow run is closed: what was granted to it is given back, unless an attempt that still runs has taken it.
func (w *waker) wake(t party.Wakeup) {
	run, _, err := wire.ParseLockID(t.LockID)
	if err != nil || t.Run == "" || isRules(t) { // a rule's request comes back by itself
		return
	}
	run.RunID = t.Run
	w.mu.Lock()
	c, known := w.temporal[run.Namespace]
	w.mu.Unlock()
	if !known { // another namespace's workers look after it
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	err = c.Client.CompleteActivityByID(ctx, c.Namespace, run.WorkflowID, run.RunID, wire.WaitID(t.Order.Schedule), resultOf(t), nil)
	var notFound *serviceerror.NotFound
	switch {
	case err == nil, t.Early: // it is told again when its turn has come
	case !errors.As(err, &notFound):
		c.Logger.Warn("lockstep: a workflow that waits for a lock was not woken, and will look by itself", "resource", t.Resource, "error", err)
		if t.HoldFence > 0 {
			w.again(t)
		}
	case t.HoldFence > 0:
		if c.isOver(ctx, run) {
			w.release(ctx, c, t)
		}
	case t.Deadlock == "" && c.hasClosed(ctx, run):
		lease := lockcore.Lease{Resource: t.Resource, LockID: t.LockID, Run: t.Run, Part: t.Part, Order: t.Order}
		if err := w.locker.LeaveQueue(ctx, lease); err != nil {
			c.Logger.Warn("lockstep: a lock that was granted to a closed workflow was not given back, and stands until the grant lapses",
				"resource", t.Resource, "error", err)
		}
	}
}

// resultOf returns the result of the activity that waits for a turn.
func resultOf(t party.Wakeup) any {
	if t.HoldFence == 0 {
		return nil
	}
	return wire.AcquireResult{LockID: t.LockID, Leases: []wire.Lease{{
		Resource: t.Resource, LockID: t.LockID, Run: t.Run, Order: t.Order, Mode: t.Mode, Fence: t.HoldFence, FirstFence: t.HoldFence,
	}}}
}

// release ends a hold that was granted to a run which is over. What the run was granted later stays.
func (w *waker) release(ctx context.Context, c Connection, t party.Wakeup) {
	err := w.locker.Release(ctx, party.Release{
		LockID: t.LockID, Run: t.Run, Resources: []string{t.Resource}, Order: t.Order, Reason: "its workflow had ended when the lock was granted",
	})
	if err != nil {
		c.Logger.Warn("lockstep: a lock that was granted to a workflow which had ended was not released, and stands until the janitor releases it",
			"resource", t.Resource, "error", err)
	}
}

// isOver reports whether no run of the run's workflow is open, so that none goes on with its holds: a run that was reset is
// closed too, and one that continued as new may have handed its holds over.
func (c Connection) isOver(ctx context.Context, run wire.Run) bool {
	info, err := currentrun.Describe(ctx, c.Client.WorkflowService(), c.Namespace, run.WorkflowID, "")
	return err == nil && currentrun.HasEnded(info.GetStatus())
}

// hasClosed reports whether a run is known to be closed. It leaves its queues before it continues as new.
func (c Connection) hasClosed(ctx context.Context, run wire.Run) bool {
	info, err := currentrun.Describe(ctx, c.Client.WorkflowService(), c.Namespace, run.WorkflowID, run.RunID)
	status := info.GetStatus()
	return err == nil && (currentrun.HasEnded(status) || status == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW)
}
