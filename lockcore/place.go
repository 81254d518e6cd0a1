package lockcore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/clock"
)

// Recheck looks after a request that Enter queued on the resource at, for those who wait without a process. It takes
// nothing, and keeps alive what stands: the place in the queue, and the kept holds of the lock ID there and on the
// resources held. It reads, in one command that all who ask at the same time share, and writes only where more than half
// of a promise has passed.
//
// first says that the request has queued just now. Its turn may have come before anybody listened for it, so this look reads
// what stands after the call; later ones may share what was read up to a second ago, where many wait.
//
// It returns nil where calling Enter again, with a greater order, is worthwhile. While the request waits it returns a
// *BusyError, and when to look again. A request that was taken out of the queue to end a deadlock gets a
// *DeadlockError. Other errors are the database's, and ctx's.
func (l *Locker) Recheck(ctx context.Context, req Request, at string, first bool, held ...string) (again time.Duration, err error) {
	req, err = l.complete(req)
	if err != nil {
		return 0, err
	}
	if req.Order == (Order{}) {
		return 0, &InvalidError{Field: "Request.Order", Value: "0.0", Bound: "that of the request that queued"}
	}
	i := slices.IndexFunc(req.Resources, func(r Resource) bool { return r.Name == at })
	if i < 0 {
		return 0, &InvalidError{Field: "at", Value: quote(at), Bound: "one of the request's resources"}
	}
	age := sharedReads
	if first {
		age = 0
	}
	docs, err := l.reads.get(ctx, append(slices.Clone(held), at), age)
	if err != nil {
		return 0, err
	}
	again = l.cfg.WaiterTTL / 4
	for name, d := range docs {
		after, err := l.keepHold(ctx, &req, name, d)
		if err != nil {
			return 0, err
		}
		again = min(again, after)
	}
	busy, after, err := l.place(ctx, &req, req.Resources[i], docs[at])
	if err != nil || busy == nil {
		return 0, err
	}
	return min(again, after), busy
}

// Withdrawn returns a *DeadlockError where a request that Enter queued was taken out of a queue to end a deadlock, and nobody waited
// who could be told: asking again with a greater order would close the circle again. Else it returns nil, or the database's error, or ctx's. It
// reads, in one command that all who ask at the same time share.
func (l *Locker) Withdrawn(ctx context.Context, req Request) error {
	req, err := l.complete(req)
	if err != nil {
		return err
	}
	names := make([]string, len(req.Resources))
	for i, r := range req.Resources {
		names[i] = r.Name
	}
	docs, err := l.reads.get(ctx, names, 0)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.withdrawn(&req, name, docs[name]); err != nil {
			return err
		}
	}
	return nil
}

// withdrawn is the *DeadlockError of a request that a document knows to have been taken out of the queue.
func (l *Locker) withdrawn(req *Request, name string, d *engine.Document) error {
	if d == nil {
		return nil
	}
	by, _ := d.Overtaker(req.LockID, req.Part, req.Order.number())
	if w := d.Tombstone(req.LockID, req.Part); w != nil {
		by.Reason = w.Verdict
	}
	if !strings.HasPrefix(by.Reason, deadlockReason) {
		return nil
	}
	op := l.acquireOp(req, Resource{Name: name})
	return deadlockError(&op, by.Reason)
}

const (
	// recheckEvery is how often the head of a queue looks whether its turn was told of, and recheckEach by how much more
	// seldom the next does.
	recheckEvery = 20 * time.Second
	recheckEach  = 50 * time.Millisecond
	// sharedReads is how old what a later look shares may be, where at least longQueue wait.
	sharedReads = time.Second
	longQueue   = 64
	// heardAtMost is the longest that a waiter without a process may be silent.
	heardAtMost = 10 * time.Minute
	// recheckLeast is the least pause between two looks.
	recheckLeast = 100 * time.Millisecond
)

// place is nil where the request is not to wait any more.
func (l *Locker) place(ctx context.Context, req *Request, res Resource, d *engine.Document) (*BusyError, time.Duration, error) {
	op := l.acquireOp(req, res)
	op.Queue, op.Refresh = true, true
	if d == nil {
		return nil, 0, nil
	}
	if err := l.withdrawn(req, res.Name, d); err != nil {
		return nil, 0, err
	}
	if _, ok := d.Overtaker(op.LockID, op.Part, op.Order); ok {
		return nil, 0, nil
	}
	claim := d.Claim(op.LockID, op.Part)
	if (claim != nil && claim.ExpiresAt.After(d.At)) || covers(d, op.LockID, op.Mode) {
		return nil, 0, nil
	}
	place, position, waiting := placeIn(d, &op)
	if place == nil && claim == nil {
		return nil, 0, nil
	}
	again := recheckEvery + time.Duration(position)*recheckEach
	op.HeardIn = heardIn(place, d.At, min(again, l.cfg.WaiterTTL/4)).Milliseconds()
	if place == nil || place.Overdue(d.At.Add(again*3/2)) || place.ExpiresAt.Sub(d.At) < l.cfg.WaiterTTL*2/5 || (position == 1 && !blocked(d, place)) {
		fresh, err := insist(ctx, "refresh", res.Name, req.Order, func() (engine.Document, error) { return l.eng.Acquire(ctx, op) })
		if err != nil {
			return nil, 0, err
		}
		l.settled(ctx, &fresh, ending{})
		if fresh.Last.Outcome != engine.Queued || fresh.Claim(op.LockID, op.Part) != nil {
			return nil, 0, nil
		}
		position = int(fresh.Last.Position)
	}
	busy := busy(&op, d)
	busy.Position, busy.Waiting, busy.Full = position, waiting, false
	if end, ok := firstEnd(d); ok && position == 1 {
		again = min(again, max(end, recheckLeast))
	}
	return busy, again, nil
}

// heardIn is when a waiter without a process promises to be heard of next: half of what it has
// waited, so that those who wait for long write seldom. It is no sooner than its next look.
func heardIn(place *engine.Waiter, now time.Time, next time.Duration) time.Duration {
	if place == nil {
		return next
	}
	return max(next, min(now.Sub(place.Since)/2, heardAtMost))
}

// keepHold extends the kept hold that the lock ID has in a document, and tells when that is to be done again.
func (l *Locker) keepHold(ctx context.Context, req *Request, name string, d *engine.Document) (time.Duration, error) {
	if d == nil {
		return recheckEvery, nil
	}
	i := slices.IndexFunc(d.Held, func(e engine.Entry) bool { return e.LockID == req.LockID && e.State == engine.Kept })
	if i < 0 || d.Held[i].TTL == 0 {
		return recheckEvery * 5, nil
	}
	ttl := time.Duration(d.Held[i].TTL) * time.Millisecond
	if left := d.Held[i].ExpiresAt.Sub(d.At); left > ttl*2/3 {
		return max(left-ttl/2, recheckLeast), nil
	}
	// Not in the request's own order: what it got before it was queued it has left, and would be refused there.
	if _, err := l.extendOne(ctx, req.LockID, name); err != nil && !errors.Is(err, ErrLost) { // a loss is for the next step to find
		return 0, err
	}
	return max(ttl/3, recheckLeast), nil
}

// reads lets those who ask at the same time share one command: what is asked while one is under way goes into the next.
type reads struct {
	eng   engine.Engine
	clock clock.Clock

	mu         sync.Mutex
	next, last *batchOfReads
	reading    bool
	// waiting is how many wait for an answer.
	waiting int
}

type batchOfReads struct {
	names []string
	docs  map[string]*engine.Document
	err   error
	done  chan struct{}
	sent  time.Time
}

// get reads documents, which the caller must not change, in a command that was sent no longer ago than age.
func (r *reads) get(ctx context.Context, names []string, age time.Duration) (map[string]*engine.Document, error) {
	r.mu.Lock()
	if last := r.last; last != nil && time.Since(last.sent) < age && last.serves(names) {
		r.mu.Unlock()
		return last.of(names), nil
	}
	if r.next == nil {
		r.next = &batchOfReads{done: make(chan struct{})}
	}
	mine := r.next
	for _, name := range names {
		if !slices.Contains(mine.names, name) {
			mine.names = append(mine.names, name)
		}
	}
	if !r.reading {
		r.reading = true
		go r.run() //nolint:gosec // others share the read, and it has a bound of its own
	}
	r.waiting++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.waiting--
		r.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-mine.done:
	}
	return mine.of(names), mine.err
}

// serves tells whether what was read is all that is asked for, and worth sharing: reading a short queue costs little.
func (b *batchOfReads) serves(names []string) bool {
	long := false
	for _, name := range names {
		if !slices.Contains(b.names, name) {
			return false
		}
		d := b.docs[name]
		long = long || (d != nil && len(d.Waiters) >= longQueue)
	}
	return long
}

func (b *batchOfReads) of(names []string) map[string]*engine.Document {
	docs := make(map[string]*engine.Document, len(names))
	for _, name := range names {
		docs[name] = b.docs[name]
	}
	return docs
}

func (r *reads) run() {
	for {
		r.mu.Lock()
		batch := r.next
		r.next = nil
		r.reading = batch != nil
		r.mu.Unlock()
		if batch == nil {
			return
		}
		batch.sent = time.Now()
		ctx, cancel := r.clock.WithTimeout(context.Background(), cleanupTimeout)
		docs, err := r.eng.Read(ctx, batch.names...)
		cancel()
		batch.docs, batch.err = make(map[string]*engine.Document, len(docs)), err
		for i := range docs {
			batch.docs[docs[i].ID] = &docs[i]
		}
		close(batch.done)
		r.mu.Lock()
		r.last = nil
		if err == nil {
			r.last = batch
		}
		r.mu.Unlock()
	}
}
