package party

import (
	"context"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// Worker is a process that takes its locks in the collection, as it registers there: the task queue
// that it serves, and its identity. The Namespace is empty if it is not known.
type Worker = store.Worker

// RegisterWorker stores that a worker runs now, so that [Locker.Workers] lists it. Repeat it while the
// worker runs. A store in memory stores nothing.
func (l *Locker) RegisterWorker(ctx context.Context, w Worker) error {
	if l.life.closed.Err() != nil {
		return ErrClosed
	}
	s, ok := l.store.(store.WorkerStore)
	if !ok {
		return nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return s.RegisterWorker(ctx, w)
}

// Workers returns the workers that have registered lately.
func (l *Locker) Workers(ctx context.Context, lately time.Duration) ([]Worker, error) {
	if l.life.closed.Err() != nil {
		return nil, ErrClosed
	}
	s, ok := l.store.(store.WorkerStore)
	if !ok {
		return nil, nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return s.Workers(ctx, lately)
}
