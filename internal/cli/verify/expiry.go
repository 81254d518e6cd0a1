package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
)

const (
	// shortTTL is the TTL of locks that expire during a check.
	shortTTL = 2 * time.Second
	// mostLate bounds the time from the end of a lock to the grant of the next.
	mostLate = 20 * time.Second
	// waiting bounds a wait for a lock that expires.
	waiting = 2 * mostLate
	// poll is the pause between two looks at the documents.
	poll = 10 * time.Millisecond
	// fenceSlack bounds how far a fence may be behind the server's time. A process dates fences by an
	// answer of the server, which may have taken as long as a command may take.
	fenceSlack = 10 * time.Second
)

// ends returns the time at which a client's lock on a resource ends by the server's clock, or the zero time.
func ends(loaded store.Loaded, resource string, client int) time.Time {
	if d := loaded.Docs[resource]; d != nil {
		i := slices.IndexFunc(d.Entries, func(e rules.Entry) bool {
			return e.LockID == fmt.Sprintf("client-%d", client) && e.State == rules.StateRunning
		})
		if i >= 0 {
			return d.Entries[i].ExpiresAt
		}
	}
	return time.Time{}
}

// expected returns an error unless an order was carried out.
func expected(a answer, o order, err error) error {
	switch {
	case err != nil:
		return err
	case a.Failed:
		return fmt.Errorf("%s on %s: %s", o.Do, o.Resource, a.Text)
	case !a.OK:
		return &violation{fmt.Sprintf("%s on %s: not granted, although no other client holds it", o.Do, o.Resource)}
	}
	return nil
}

// expiry is a check: a process that renews its locks is killed, and waiters must be granted them not before
// they have ended by the server's clock, and soon after.
func (r *run) expiry(ctx context.Context, seed uint64) (outcome, error) {
	waiters, stop, err := r.clients(ctx, r.o.Clients, seed)
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	victim, err := r.start(ctx, len(waiters), seed)
	if err != nil {
		return outcome{}, err
	}
	defer victim.Kill()
	handovers := make([]*handover, len(waiters))
	names := make([]string, len(waiters))
	for i, w := range waiters {
		names[i] = fmt.Sprintf("expiry/%d/%d", seed, i)
		o := order{Do: linear.WaitExclusive, Resource: names[i], TTL: shortTTL, Within: waiting}
		a, _, _, err := victim.do(ctx, o)
		if err := expected(a, o, err); err != nil {
			return outcome{}, err
		}
		r.operations.Add(1)
		handovers[i] = &handover{run: r, waiter: w, resource: names[i], fence: a.Fence}
	}
	longest := r.watchAnswers(ctx)
	defer longest()
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, h := range handovers {
		all.Go(func() { h.wait(ctx) })
	}
	if err := r.untilQueued(ctx, handovers, names); err != nil {
		return outcome{}, err
	}
	victim.Kill()
	loaded, err := r.store.LoadMajority(ctx, names...)
	if err != nil {
		return outcome{}, err
	}
	for _, h := range handovers {
		if end := ends(loaded, h.resource, victim.number); !end.IsZero() {
			h.end = end
		}
	}
	all.Wait()
	found, err := judgeHandovers(handovers)
	if silent := longest(); found.late && silent > mostLate/4 {
		return outcome{count: found.count, reason: fmt.Sprintf("the database did not answer for %s", silent.Round(time.Second))}, err
	}
	return found, err
}

// watchAnswers asks the database again and again, and returns a function that ends this and returns the longest time without an answer.
func (r *run) watchAnswers(ctx context.Context) (longest func() time.Duration) {
	ctx, stop := context.WithCancel(ctx)
	last, most := time.Now(), time.Duration(0)
	var all sync.WaitGroup
	all.Go(func() {
		for ; ctx.Err() == nil; harness.Pause(ctx, time.Second/2) {
			if _, err := r.store.LoadMajority(ctx); err == nil {
				most, last = max(most, time.Since(last)), time.Now()
			}
		}
	})
	return func() time.Duration {
		stop()
		all.Wait()
		return max(most, time.Since(last))
	}
}

// untilQueued waits until each resource has a waiter, or has been granted to another process. It notes when the
// locks end as long as their holder renews them.
func (r *run) untilQueued(ctx context.Context, handovers []*handover, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, waiting)
	defer cancel()
	for {
		loaded, err := r.store.LoadMajority(ctx, names...)
		if err != nil {
			return err
		}
		queued := 0
		for _, h := range handovers {
			if end := ends(loaded, h.resource, len(names)); !end.IsZero() {
				h.end = end
				queued += len(loaded.Docs[h.resource].Waiters)
			} else {
				queued++
			}
		}
		if queued == len(names) {
			return nil
		}
		harness.Pause(ctx, poll)
	}
}

// handover is the wait of a client for a lock whose holder is killed.
type handover struct {
	run      *run
	waiter   *process
	resource string
	// fence is that of the killed holder, and end the end of its lock: the latest that was read.
	fence  int64
	end    time.Time
	answer answer
	// granted is the server's time, read after the waiter's answer.
	granted time.Time
	err     error
}

func (h *handover) wait(ctx context.Context) {
	h.answer, _, _, h.err = h.waiter.do(ctx, order{Do: linear.WaitExclusive, Resource: h.resource, TTL: longTTL, Within: waiting})
	if h.err != nil {
		return
	}
	h.run.operations.Add(1)
	loaded, err := h.run.store.LoadMajority(ctx)
	h.granted, h.err = loaded.At, err
}

// judgeHandovers compares grants with the ends of the locks.
func judgeHandovers(handovers []*handover) (found outcome, err error) {
	var first, last time.Duration
	for _, h := range handovers {
		if h.err != nil {
			return found, h.err
		}
		late := h.granted.Sub(h.end)
		if !h.end.IsZero() {
			if found.count == 0 || late < first {
				first = late
			}
			last = max(last, late)
			found.count++
		}
		switch {
		case found.seen != "" && !found.late:
		case h.answer.Failed:
			return found, errors.New(h.answer.Text)
		case !h.answer.OK:
			found.late, found.seen = true, fmt.Sprintf("on %s: a waiter was not granted the lock of a killed process within %s", h.resource, waiting*3/4)
		case h.end.IsZero(): // the holder was too slow to renew it
		case late < 0:
			found.late, found.seen = false, fmt.Sprintf("on %s: client %d was granted the lock at %s by the server's clock, at the latest, and the lock of the killed process ended at %s",
				h.resource, h.waiter.number, h.granted.Format(timeOfDay), h.end.Format(timeOfDay))
		case late > mostLate:
			found.late, found.seen = true, fmt.Sprintf("on %s: client %d was granted the lock %s after its end", h.resource, h.waiter.number, late)
		case h.answer.Fence <= h.fence:
			found.late, found.seen = false, fmt.Sprintf("on %s: fence %d was granted after fence %d", h.resource, h.answer.Fence, h.fence)
		}
	}
	if found.count == 0 {
		found.reason = "the holder did not renew its locks in time: the library or the machine is too slow"
		return found, nil
	}
	found.note = fmt.Sprintf("granted %s to %s after the end", first.Round(time.Millisecond), last.Round(time.Millisecond))
	return found, nil
}

const timeOfDay = "15:04:05.000"

// fences is a check: two clients take a lock by turns. In between, its document is removed, as the server
// removes documents of idle resources.
func (r *run) fences(ctx context.Context, seed uint64) (found outcome, err error) {
	const grants, removedEvery = 24, 8
	clients, stop, err := r.clients(ctx, 2, seed)
	if err != nil {
		return found, err
	}
	defer stop()
	resource := fmt.Sprintf("fences/%d", seed)
	var last int64
	for i := range grants {
		removed := i > 0 && i%removedEvery == 0
		if removed {
			if err := r.removeDocument(ctx, resource); err != nil {
				return found, err
			}
			last = 0 // of a document that is removed after an hour or more, not after a moment
		}
		before, err := r.store.LoadMajority(ctx)
		if err != nil {
			return found, err
		}
		o := order{Do: linear.TakeExclusive, Resource: resource, TTL: longTTL, Within: 30 * time.Second}
		a, _, _, err := clients[i%2].do(ctx, o)
		if err := expected(a, o, err); err != nil {
			return found, err
		}
		after, err := r.store.LoadMajority(ctx)
		if err != nil {
			return found, err
		}
		if _, err := clients[i%2].perform(ctx, r, order{Do: linear.Leave, Resource: resource}); err != nil {
			return found, err
		}
		r.operations.Add(1)
		found.count++
		least := before.At.Add(-fenceSlack).UnixMilli()
		switch {
		case found.seen != "":
		case a.Fence <= last:
			found.seen = fmt.Sprintf("on %s: fence %d was granted after fence %d", resource, a.Fence, last)
		case a.Fence > max(last+1, after.At.UnixMilli()):
			found.seen = fmt.Sprintf("on %s: fence %d was granted after fence %d, when the server's time was %d or earlier", resource, a.Fence, last, after.At.UnixMilli())
		case a.Fence < least:
			found.seen = fmt.Sprintf("on %s: fence %d was granted when the server's time was %d or later", resource, a.Fence, before.At.UnixMilli())
		}
		last = a.Fence
	}
	return found, nil
}
