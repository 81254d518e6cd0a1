package lockcore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrClosed is answered by every call of a Locker that was closed, and is the cause with which
// calls that wait end then.
var ErrClosed = errors.New("lockstep: locker closed")

// Close ends what the Locker does. Calls that wait in a queue leave it and answer with ErrClosed.
// All sessions end as by [Session.Leave]: so stop the work that they protect first. Then Close
// waits for the cleanup that goes on in the background after requests that gave up, as long as ctx
// allows, and for up to 10 s after the last answer that was lost. What it could not do by then it
// says, in joined errors that name the resources: it ends with its TTL. A second call does nothing.
func (l *Locker) Close(ctx context.Context) (err error) {
	l.life.once.Do(func() { err = l.close(ctx) })
	return err
}

func (l *Locker) close(ctx context.Context) error {
	l.life.begin(ErrClosed)
	var errs []error
	if n := len(l.life.calls.wait(ctx)); n > 0 {
		errs = append(errs, fmt.Errorf("lockstep: close: %d calls are still under way: %w", n, context.Cause(ctx)))
	}
	sessions := l.keeper.close()
	failed := make([]error, len(sessions))
	inParallel(len(sessions), func(i int) { failed[i] = sessions[i].leave(ctx, ErrClosed) })
	errs = append(errs, failed...)
	left := l.life.cleanups.wait(ctx)
	l.life.end()
	for _, lease := range left {
		errs = append(errs, &UnknownOutcomeError{Op: "leave", Resource: lease.Resource, Order: lease.Order, Err: ErrClosed})
	}
	return errors.Join(errs...)
}

// lifecycle is how a Locker comes to its end: first nothing new begins, and then nothing is sent
// any more.
type lifecycle struct {
	once            sync.Once
	closing, closed context.Context
	begin           context.CancelCauseFunc
	end             context.CancelFunc
	// calls are those that may take something, and cleanups end what others have left.
	calls, cleanups group
}

func newLifecycle() *lifecycle {
	l := &lifecycle{calls: newGroup(), cleanups: newGroup()}
	l.closing, l.begin = context.WithCancelCause(context.Background())
	l.closed, l.end = context.WithCancel(context.Background())
	return l
}

// call begins a call that may take something. Its context ends when Close begins; done has to be
// called at its end.
func (l *lifecycle) call(ctx context.Context) (_ context.Context, done func(), err error) {
	ended := l.calls.add(Lease{})
	if l.closing.Err() != nil {
		ended()
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		ended()
	}, nil
}

func endedByClose(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// group is what is under way, each with the lease that it is about, if it is about one.
type group struct {
	mu   sync.Mutex
	jobs map[*Lease]bool
	less chan struct{} // closed when one has ended
}

func newGroup() group { return group{jobs: map[*Lease]bool{}, less: make(chan struct{})} }

func (g *group) add(lease Lease) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs[&lease] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.jobs, &lease)
		close(g.less)
		g.less = make(chan struct{})
	}
}

// wait waits until nothing is under way or ctx ends, and returns what still is.
func (g *group) wait(ctx context.Context) []*Lease {
	for {
		g.mu.Lock()
		jobs, less := slices.Collect(maps.Keys(g.jobs)), g.less
		g.mu.Unlock()
		if len(jobs) == 0 {
			return nil
		}
		select {
		case <-less:
		case <-ctx.Done():
			return jobs
		}
	}
}

// cleanupPause is that before what could not be left is left again; it grows like that of those who
// wait.
const cleanupPause = 250 * time.Millisecond

// giveUp leaves what a request got, or may have got, although its context may have ended; in the
// background, if it cannot be left now. If an answer to the request was lost, it is left twice: at
// once, and when no copy of a command can be on its way any more.
func (l *Locker) giveUp(ctx context.Context, leases ...Lease) {
	ctx, cancel := l.detached(ctx)
	defer cancel()
	inParallel(len(leases), func(i int) {
		if err := l.leaveOne(ctx, leases[i], leases[i].keeps); err != nil {
			l.cleanLater(ctx, leases[i], cleanupPause)
		}
	})
}

// leaveLate leaves again what a leave that began then has left, if a late copy of a lost command may
// have come after it. When the answer came says nothing: this process may have been stopped.
func (l *Locker) leaveLate(ctx context.Context, lease Lease, began time.Time) {
	lost := lease.lostAt
	lease.lostAt = time.Time{}
	if !lost.IsZero() && began.Sub(lost) < commandTimeout {
		l.cleanLater(ctx, lease, max(cleanupPause, commandTimeout-time.Since(lost)))
	}
}

// cleanLater leaves a lease after a pause, until that is known to be done, or the lease has ended.
func (l *Locker) cleanLater(ctx context.Context, lease Lease, pause time.Duration) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(l.life.closed, cancel)
	done := l.life.cleanups.add(lease)
	go func() {
		defer done()
		defer cancel()
		defer stop()
		began, stands := time.Now(), max(min(lease.ttl, maxTTL), l.cfg.WaiterTTL, 4*l.cfg.ClaimTTL)+commandTimeout
		for tries := 0; sleep(ctx, l.clock, pause); tries++ {
			if l.leaveOne(ctx, lease, lease.keeps) == nil || (lease.Left != Forever && time.Since(began) > stands) {
				return
			}
			pause = l.pauseAfter(tries)
		}
	}()
}
