package party

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// ErrClosed is answered by every call of a Locker that was closed, and is the cause with which
// calls that wait end then.
var ErrClosed = errors.New("lockstep: locker closed")

// Close ends what the Locker does. Calls that wait in a queue leave it and answer with ErrClosed.
// All sessions end as by [Session.Leave]: so stop the work that they protect first. Then Close
// waits for the cleanup that goes on in the background after requests that gave up, as long as ctx
// allows, but no longer than 20 s. What it could not do by then it
// says, in joined errors that name the resources: it ends with its TTL. A second call does nothing.
func (l *Locker) Close(ctx context.Context) (err error) {
	l.life.once.Do(func() { err = l.close(ctx) })
	return err
}

func (l *Locker) close(ctx context.Context) error {
	l.life.begin(ErrClosed)
	var errs []error
	if n := l.life.calls.wait(ctx); n > 0 {
		errs = append(errs, fmt.Errorf("lockstep: close: %d calls are still under way: %w", n, context.Cause(ctx)))
	}
	sessions := l.keeper.close()
	failed := make([]error, len(sessions))
	inParallel(len(sessions), func(i int) { failed[i] = sessions[i].leave(ctx, ErrClosed) })
	errs = append(errs, failed...)
	settle, cancel := l.clock.WithTimeout(ctx, 2*commandTimeout) // one that hangs, and what settles it
	defer cancel()
	for name, calls := range l.lines.WaitForDebts(settle) {
		for _, c := range calls {
			order := Order{}
			if op, ok := c.Op.(rules.Leave); ok {
				order = orderOf(op.Order)
			}
			errs = append(errs, &UnknownOutcomeError{Op: "leave", Resource: name, Order: order, Err: ErrClosed})
		}
	}
	l.life.end()
	l.lines.Close()
	return errors.Join(errs...)
}

// lifecycle is how a Locker comes to its end: first nothing new begins, and then nothing is sent
// any more.
type lifecycle struct {
	once            sync.Once
	closing, closed context.Context
	begin           context.CancelCauseFunc
	end             context.CancelFunc
	// calls are those that may take something.
	calls group
}

func newLifecycle() *lifecycle {
	l := &lifecycle{calls: newGroup()}
	l.closing, l.begin = context.WithCancelCause(context.Background())
	l.closed, l.end = context.WithCancel(context.Background())
	return l
}

// call begins a call that may take something. Its context ends when Close begins; done has to be
// called at its end.
func (l *lifecycle) call(ctx context.Context) (_ context.Context, done func(), err error) {
	ended := l.calls.add()
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

// group counts what is under way.
type group struct {
	mu   sync.Mutex
	jobs int
	less chan struct{} // closed when one has ended
}

func newGroup() group { return group{less: make(chan struct{})} }

func (g *group) add() (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.jobs--
		close(g.less)
		g.less = make(chan struct{})
	}
}

// wait waits until nothing is under way or ctx ends, and returns how much still is.
func (g *group) wait(ctx context.Context) int {
	for {
		g.mu.Lock()
		jobs, less := g.jobs, g.less
		g.mu.Unlock()
		if jobs == 0 {
			return 0
		}
		select {
		case <-less:
		case <-ctx.Done():
			return jobs
		}
	}
}
