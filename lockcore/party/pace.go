package party

import (
	"errors"
	"hash/crc32"
	"slices"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/pace"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// holdTimes say how long holds of a resource last, by those that this Locker has ended: an average
// that moves by an eighth with each. From it comes a guess at when a turn is near, so that a request
// waits for it in its slot instead of coming again, and parked ones are called up before it. A guess
// is never right or wrong, only fast or slow; so resources may share an average, by a hash of their
// names.
type holdTimes [1 << 12]atomic.Int64 // milliseconds; 0 is unknown

func (h *holdTimes) of(resource string) *atomic.Int64 {
	return &h[crc32.ChecksumIEEE([]byte(resource))%uint32(len(h))]
}

// learn notes what an operation has ended, and reports whether that was a hold.
func (h *holdTimes) learn(a *update.Answer) bool {
	i := slices.IndexFunc(a.Ended, func(e rules.Entry) bool { return e.CreatedAt != nil })
	if i < 0 {
		return false
	}
	took, average := max(1, a.After.At.Sub(*a.Ended[i].CreatedAt).Milliseconds()), h.of(a.After.ID)
	if old := average.Load(); old > 0 {
		took = max(1, (7*old+took)/8)
	}
	average.Store(took)
	return true
}

// turn is when the request at a position of a queue can expect its turn; 0 if nothing is known.
func (h *holdTimes) turn(resource string, position int, limit int64) time.Duration {
	at := max(1, int(min(limit, rules.Crowd))) // as many are let in at once
	return time.Duration(h.of(resource).Load()) * time.Millisecond * time.Duration((position+at-1)/at)
}

// inline counts the requests of Enter that wait for a turn that is near.
type inline struct{ waits, most atomic.Int64 }

// begin reports whether one more may wait. Then it calls end.
func (i *inline) begin() bool {
	if i.waits.Add(1) > i.most.Load() {
		i.waits.Add(-1)
		return false
	}
	return true
}

func (i *inline) end() { i.waits.Add(-1) }

// room is how many more may wait.
func (i *inline) room() int { return int(i.most.Load() - i.waits.Load()) }

// LimitInlineWaits has at most n requests of Enter wait at once for a turn that is near, if that is
// less than before: each keeps a slot of a worker meanwhile. Without it there are 25. With 0 none
// waits.
func (l *Locker) LimitInlineWaits(n int) {
	for {
		most := l.inline.most.Load()
		if int64(max(n, 0)) >= most || l.inline.most.CompareAndSwap(most, int64(max(n, 0))) {
			return
		}
	}
}

const inlineWaits = 25

// isNear reports whether a request that has queued can expect its turn in time to wait for it. If
// nothing is known of the pace, that is whether it is next in line. Else its turn comes in half of
// the time, which leaves the other half for what the pace does not say, or within pace.PositionWait; holds
// are so short that its place moves, and all before it may wait inline too: those that are parked take
// longer to come than the pace says.
func (l *Locker) isNear(busy *BusyError, wait time.Duration) bool {
	switch {
	case busy.turn == 0:
		return busy.Position == 1
	case busy.Position < 1 || int64(busy.Position) > l.inline.most.Load():
		return false
	}
	return busy.turn/time.Duration(busy.Position) < pace.PositionWait && busy.turn < max(wait/2, min(wait, pace.PositionWait))
}

// turnOf is when a request that found its resource busy can expect its turn; 0 if nothing is known.
func turnOf(err error) time.Duration {
	if busy := new(BusyError); errors.As(err, &busy) {
		return busy.turn
	}
	return 0
}

// near lists the parked requests at the head of a queue whose turn is near, as many as may wait
// inline. The mutex is held.
func (w *watcher) near(d *rules.Document) (early []Wakeup) {
	r := w.table[d.ID]
	for i := range d.Waiters {
		one := &d.Waiters[i]
		turn := w.locker.holds.turn(d.ID, i+1, one.Limit)
		if turn == 0 || turn > pace.WakeLead || len(early) >= w.locker.inline.room() {
			break
		}
		here := r != nil && slices.ContainsFunc(r.local, func(l *waiter) bool { return l.request.LockID == one.LockID && l.request.Part == one.Part })
		if one.Label != "" && one.Hold == nil && !here && one.Waits(d.At) && !one.Overdue(d.At) {
			call := wakeupOf(d, one.LockID, one.Label, one.Part, one.Order)
			call.Early = true
			early = append(early, call)
		}
	}
	return early
}
