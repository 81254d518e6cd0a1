package scenarios_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/engine/update"
	"github.com/temporal-lockstep/lockstep/internal/proof/scenarios"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestScenarios_InMemory(t *testing.T) {
	t.Parallel()
	play(t, store.NewMemory(time.Now))
}

func TestScenarios_MongoDB(t *testing.T) {
	t.Parallel()
	s := store.New(testenv.Mongo(t).Collection("locks"), 24*time.Hour)
	require.NoError(t, s.Prepare(t.Context()))
	play(t, s)
}

// play plays all scenarios, on one store and by one process.
func play(t *testing.T, s store.Store) {
	t.Helper()
	h := newHarness(t, s)
	t.Run("all", func(t *testing.T) { // ends with the last of them
		for _, scenario := range scenarios.All() {
			t.Run(scenario.Name, func(t *testing.T) {
				t.Parallel()
				scenario.Run(t, h, t.Name())
			})
		}
	})
}

// harness sends operations through the update loop to a store.
type harness struct {
	ctx     context.Context
	lines   *update.Lines
	store   store.Store
	travels atomic.Int64
}

func newHarness(t *testing.T, s store.Store) *harness {
	t.Helper()
	lines := update.New(s, clock.Real{}, scenarios.Policy)
	t.Cleanup(lines.Close)
	return &harness{ctx: t.Context(), lines: lines, store: s}
}

// Apply sends an operation, and waits for its answer.
func (l *harness) Apply(op rules.Op) (*rules.Document, rules.Result, error) {
	a := l.lines.Do(l.ctx, &update.Call{Op: op})
	return a.After, a.Result, a.Err
}

// Stored reads the document.
func (l *harness) Stored(resource string) (*rules.Document, error) {
	loaded, err := l.store.Load(l.ctx, resource)
	if err != nil {
		return nil, err
	}
	if loaded.Docs[resource] == nil {
		return nil, fmt.Errorf("%q has no document", resource)
	}
	return loaded.Docs[resource].Clone(), nil
}

// Travel moves all times of the stored document back, except those without end. The document gets a
// new version, so the update loop reads it again.
func (l *harness) Travel(resource string, d time.Duration) error {
	next, err := l.Stored(resource)
	if err != nil {
		return err
	}
	shift(next, d)
	prev := next.Version
	next.Version = rules.Version{N: prev.N + 1, R: fmt.Sprintf("travel-%d", l.travels.Add(1))}
	done, err := l.store.Swap(l.ctx, store.Swap{Prev: prev, Next: next})
	if err == nil && done != 1 {
		err = fmt.Errorf("%q was changed by another process", resource)
	}
	return err
}

func shift(doc *rules.Document, d time.Duration) {
	move := func(times ...*time.Time) {
		for _, t := range times {
			if t != nil && t.Before(rules.Never) {
				*t = t.Add(-d)
			}
		}
	}
	move(&doc.EvidenceSince, &doc.IdleAt)
	for i := range doc.Entries {
		e := &doc.Entries[i]
		move(&e.ExpiresAt, e.RenewedAt, e.Since, e.ClaimedAt, e.PositionExpiresAt, e.CreatedAt)
	}
	for i := range doc.Waiters {
		w := &doc.Waiters[i]
		move(&w.Since, &w.ExpiresAt, &w.OverdueAt, w.Started)
	}
	for i := range doc.Evidence {
		move(&doc.Evidence[i].At)
	}
}
