package lockcore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// ErrClosed is answered by every call of a Locker that was closed, and is the cause with which
// calls that wait end then.
var ErrClosed = errors.New("lockstep: locker closed")

// Close ends what the Locker does. Calls that wait in a queue leave it and answer with ErrClosed.
// All sessions end as by [Session.Leave]: so stop the work that they protect first. Then Close
// waits for the cleanup that goes on in the background after requests that gave up. In the end
// every call answers with ErrClosed.
//
// Close waits for the database as long as ctx allows, and for up to 10 s after the last answer that
// was lost. What it could not do by then it says, in joined errors that name the resources: it ends
// with its TTL. Calling Close again does nothing.
func (l *Locker) Close(ctx context.Context) error {
	if !l.life.begin() {
		return nil
	}
	l.watch.end()
	var errs []error
	if n := l.life.calls.wait(ctx); n > 0 {
		errs = append(errs, fmt.Errorf("lockstep: close: %d calls are still under way: %w", n, context.Cause(ctx)))
	}
	sessions := l.keeper.close()
	failed := make([]error, len(sessions))
	inParallel(len(sessions), func(i int) { failed[i] = sessions[i].leave(ctx, ErrClosed) })
	errs = append(errs, failed...)
	l.life.cleanups.wait(ctx)
	l.life.end()
	for _, lease := range l.cleaner.left() {
		errs = append(errs, &UnknownOutcomeError{Op: "leave", Resource: lease.Resource, Order: lease.Order, Err: ErrClosed})
	}
	return errors.Join(errs...)
}

// lifecycle is how a Locker comes to its end: first nothing new begins, and then nothing is sent
// any more.
type lifecycle struct {
	closing, closed context.Context
	begin           func() bool
	end             func()
	// calls are those that may take something, and cleanups end what others have left.
	calls, cleanups *group
}

func newLifecycle() lifecycle {
	closing, begin := context.WithCancelCause(context.Background())
	closed, end := context.WithCancel(context.Background())
	var once sync.Once
	return lifecycle{
		closing: closing, closed: closed, calls: &group{}, cleanups: &group{}, end: end,
		begin: func() (first bool) {
			once.Do(func() {
				first = true
				begin(ErrClosed)
			})
			return first
		},
	}
}

// call begins a call that may take something. Its context ends when Close begins; done has to be
// called at its end.
func (l *lifecycle) call(ctx context.Context) (_ context.Context, done func(), err error) {
	l.calls.add()
	if l.closing.Err() != nil {
		l.calls.done()
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		l.calls.done()
	}, nil
}

// endedByClose adds ErrClosed to the error of a call whose context Close ended.
func endedByClose(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// group counts what is under way.
type group struct {
	mu   sync.Mutex
	n    int
	zero chan struct{}
}

func (g *group) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
}

func (g *group) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.zero != nil {
		close(g.zero)
		g.zero = nil
	}
}

// wait waits until nothing is under way or ctx ends, and returns how much still is.
func (g *group) wait(ctx context.Context) int {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return 0
	}
	if g.zero == nil {
		g.zero = make(chan struct{})
	}
	zero := g.zero
	g.mu.Unlock()
	select {
	case <-zero:
		return 0
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// end stops looking after those who wait elsewhere.
func (w *watcher) end() {
	w.mu.Lock()
	listeners := slices.Collect(maps.Keys(w.listeners))
	w.mu.Unlock()
	for _, id := range listeners {
		w.forget(id)
	}
}
