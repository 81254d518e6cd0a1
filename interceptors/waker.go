package interceptors

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	workflowpb "go.temporal.io/api/workflow/v1"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// waker completes the activities by which workflows wait, when their turn has come. It does so in the background and
// as well as it can: a wake-up that is lost is repaired by the waiting activity's next attempt.
type waker struct {
	cluster string
	locker  *lockcore.Locker
	// temporal is set by the first activity that this worker runs.
	temporal atomic.Pointer[connection]

	mu sync.Mutex
	// told is when a wake-up was sent, so that a turn that is seen again is not told again at once.
	told  map[lockcore.Turn]time.Time
	queue []lockcore.Turn
	// senders is how many goroutines are sending.
	senders int
}

type connection struct {
	client client.Client
	logger log.Logger
}

const (
	// mostSenders and mostTurns bound what is sent at once, and what waits for it.
	mostSenders = 8
	mostTurns   = 4096
	// tellAgain is after what time a turn that is still open is told again.
	tellAgain = 5 * time.Second
	// wakeTimeout bounds one wake-up.
	wakeTimeout = 10 * time.Second
)

func newWaker(l *lockcore.Locker, cluster string) *waker {
	return &waker{cluster: cluster, locker: l, told: map[lockcore.Turn]time.Time{}}
}

// use takes the connection of the worker that runs an activity, and hears of turns from then on.
func (w *waker) use(ctx context.Context) {
	if w == nil {
		return
	}
	c, known := activity.GetClient(ctx), w.temporal.Load()
	if known != nil && known.client == c || !protocol.Connects(c) {
		return
	}
	// The latest one counts: an earlier worker's client may have been closed with it.
	if w.temporal.Swap(&connection{c, activity.GetLogger(ctx)}) == nil {
		w.locker.OnTurn(w.turn)
	}
}

// turn queues a wake-up. It does not block, and drops what is too much.
func (w *waker) turn(t lockcore.Turn) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.told[t]) < tellAgain || len(w.queue) >= mostTurns {
		return
	}
	if len(w.told) >= mostTurns {
		for old, at := range w.told {
			if now.Sub(at) >= tellAgain {
				delete(w.told, old)
			}
		}
	}
	w.told[t] = now
	w.queue = append(w.queue, t)
	if w.senders < mostSenders {
		w.senders++
		go w.send()
	}
}

func (w *waker) send() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.senders--
			w.mu.Unlock()
			return
		}
		t := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		w.wake(t)
	}
}

// wake completes the activity that waits for a turn. One of these happens:
//  1. it is completed, whether it runs or waits for its next attempt, in the run itself or in the one that it has handed
//     its locks over to;
//  2. there is none yet, or none any more: its first attempt, or whoever came in between, sees the turn;
//  3. its workflow run is closed, and none goes on in its name: what was granted to it is given back.
func (w *waker) wake(t lockcore.Turn) {
	run, err := protocol.ParseLockID(t.LockID)
	if err != nil || run.Cluster != w.cluster || run.Hashed {
		return
	}
	c := w.temporal.Load()
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	var result any
	if t.Deadlock != "" {
		result = protocol.WaitResult{Deadlock: t.Deadlock}
	}
	complete := func(runID string) error {
		return c.client.CompleteActivityByID(ctx, run.Namespace, run.WorkflowID, runID, protocol.WaitID(t.Order.Schedule), result, nil)
	}
	closed, err := false, complete(run.RunID)
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		var heir string
		if heir, closed = w.heir(ctx, run); heir != "" {
			err = complete(heir)
		}
	}
	switch {
	case err == nil:
	case !errors.As(err, &notFound):
		c.logger.Warn("lockstep: a workflow that waits for a lock was not woken, and will look by itself", "resource", t.Resource, "error", err)
	case t.Deadlock == "" && closed:
		if err := w.locker.Leave(ctx, lockcore.Lease{Resource: t.Resource, LockID: t.LockID, Part: t.Part, Order: t.Order}); err != nil {
			c.logger.Warn("lockstep: a lock that was granted to a closed workflow was not given back, and stands until the grant lapses",
				"resource", t.Resource, "error", err)
		}
	}
}

// heir tells whether a run is known to have ended, and, where it has continued as new, which open run may go on in its
// name. One that cannot be asked about has not ended.
func (w *waker) heir(ctx context.Context, run protocol.Run) (heir string, closed bool) {
	info, err := w.describe(ctx, run, run.RunID)
	switch {
	case err != nil:
		return "", false
	case info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return "", protocol.HasEnded(info.GetStatus())
	}
	now, err := w.describe(ctx, run, "")
	if err != nil {
		return "", false
	}
	heir, known := protocol.Heir(info, now)
	return heir, known && heir == ""
}

// describe asks about a run of a workflow, the last one where runID is empty.
func (w *waker) describe(ctx context.Context, run protocol.Run, runID string) (*workflowpb.WorkflowExecutionInfo, error) {
	return protocol.Describe(ctx, w.temporal.Load().client.WorkflowService(), run.Namespace, run.WorkflowID, runID)
}
