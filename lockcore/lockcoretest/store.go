package lockcoretest

import (
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// Store keeps documents in memory. It is for unit tests of programs that use locks, on a
// [lockcore.Locker] made with lockcore.NewWithStore, and needs no server:
//
//	locker, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
//
// It is safe for concurrent use. Give it the Now of a [Clock] to decide what time it is.
type Store struct {
	*store.Memory
	now func() time.Time
}

// NewStore returns an empty store. Expiry is decided by now, as a database decides it by the server's
// clock.
func NewStore(now func() time.Time) *Store { return &Store{store.NewMemory(now), now} }

// ServerTime returns the time by which expiry is decided. A Locker reads it before each write, so it
// notices at once when a test advances the clock.
func (s *Store) ServerTime() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// Document returns what is stored for a resource; its ID is empty if nothing is.
func (s *Store) Document(resource string) rules.Document {
	d, _ := s.Memory.Document(resource)
	return d
}

// Clock is a clock that moves only when [Clock.Advance] is called.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock whose time is start.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d, which may be negative: a server's clock can run backwards too.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
