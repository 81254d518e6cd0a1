package ui

import (
	"context"
	"sync"
	"time"
)

const (
	// leastPause is the least time between two readings. After one that took long, the next comes only
	// after ten times that: all viewers together keep the database busy for a tenth of the time.
	leastPause = 1500 * time.Millisecond
	// mostReading bounds a reading.
	mostReading = time.Minute
)

// shared is what was read last, for all viewers.
type shared[T any] struct {
	read func(ctx context.Context) (T, error)

	mu       sync.Mutex
	last     T
	err      error
	at, next time.Time
}

// get is what was read, and when. Callers do not write to it. A failure is shared too, so that a
// database that does not answer is not asked by each viewer in turn.
func (s *shared[T]) get(ctx context.Context) (T, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if began.Before(s.next) {
		return s.last, s.at, s.err
	}
	// The others wait for it, so it goes on when this viewer's browser has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostReading)
	defer cancel()
	s.last, s.err = s.read(ctx)
	s.at = began
	pause := 10 * time.Since(began)
	if s.err != nil {
		pause = time.Since(began) // what failed late may go well at once
	}
	s.next = time.Now().Add(max(leastPause, pause))
	return s.last, s.at, s.err
}
