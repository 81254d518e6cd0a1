package verify

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// The controls: defects of a database, each of which a check must find.
const (
	// EarlyAnswer acknowledges writes before they are stored, and loses some.
	EarlyAnswer = "early-answer"
	// ClockJump reports server times that jump.
	ClockJump = "clock-jump"
	// LostCompare replaces documents whatever their version is.
	LostCompare = "lost-compare"
	// LostRenewals acknowledges renewals of sessions, and stores none.
	LostRenewals = "lost-renewals"
)

// Controls returns the names of the controls.
func Controls() []string { return []string{EarlyAnswer, ClockJump, LostCompare, LostRenewals} }

// broken returns a store with the defect that a control names, or s if the name is empty.
func broken(control string, seed uint64, s store.Store) (store.Store, error) {
	dice := &dice{rand: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // a failed run must be repeatable
	switch control {
	case "":
		return s, nil
	case EarlyAnswer:
		return &earlyAnswer{s, dice}, nil
	case ClockJump:
		return &clockJump{s, dice, mostJump}, nil
	case LostCompare:
		return &lostCompare{s}, nil
	case LostRenewals:
		return &lostRenewals{s}, nil
	}
	return nil, fmt.Errorf("there is no control %q: want %s", control, strings.Join(Controls(), ", "))
}

// dice draws numbers. It is safe for concurrent use.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (d *dice) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.IntN(n)
}

// earlyAnswer acknowledges one swap in four at once. One in two of these is stored later, if the version
// is still the same, and the others are lost.
type earlyAnswer struct {
	store.Store
	*dice
}

// Swap may return before anything is stored.
func (e *earlyAnswer) Swap(ctx context.Context, swaps ...store.Swap) (int, error) {
	switch e.below(8) {
	case 0:
		return len(swaps), nil
	case 1:
		ctx := context.WithoutCancel(ctx)
		time.AfterFunc(20*time.Millisecond, func() { _, _ = e.Store.Swap(ctx, swaps...) }) // not awaited
		return len(swaps), nil
	}
	return e.Store.Swap(ctx, swaps...)
}

// mostJump bounds the jumps of the clock.
const mostJump = 20 * time.Second

// clockJump adds a random duration, up to most, to the server's time, or subtracts it.
type clockJump struct {
	store.Store
	*dice
	most time.Duration
}

func (c *clockJump) jump(loaded store.Loaded) store.Loaded {
	loaded.At = loaded.At.Add(time.Duration(c.below(2 * int(c.most)))).Add(-c.most)
	for _, d := range loaded.Docs {
		d.At = loaded.At
	}
	return loaded
}

// Load returns another time than the server's.
func (c *clockJump) Load(ctx context.Context, names ...string) (store.Loaded, error) {
	loaded, err := c.Store.Load(ctx, names...)
	return c.jump(loaded), err
}

// LoadMajority returns another time than the server's.
func (c *clockJump) LoadMajority(ctx context.Context, names ...string) (store.Loaded, error) {
	loaded, err := c.Store.LoadMajority(ctx, names...)
	return c.jump(loaded), err
}

// lostCompare replaces documents whatever their version is.
type lostCompare struct{ store.Store }

// Swap replaces documents one by one, under the version that each has.
func (l *lostCompare) Swap(ctx context.Context, swaps ...store.Swap) (done int, err error) {
	for _, s := range swaps {
		for {
			loaded, err := l.Load(ctx, s.Next.ID)
			if err != nil {
				return done, err
			}
			s.Prev = rules.Version{}
			if d := loaded.Docs[s.Next.ID]; d != nil {
				s.Prev = d.Version
			}
			n, err := l.Store.Swap(ctx, s)
			if err != nil {
				return done, err
			}
			if n == 1 {
				break
			}
		}
		done++
	}
	return done, nil
}

// lostRenewals acknowledges each extension at once.
type lostRenewals struct{ store.Store }

// Extend stores nothing.
func (l *lostRenewals) Extend(context.Context, []store.Extension) (rest map[string]bool, r string, err error) {
	return nil, crand.Text(), nil
}
