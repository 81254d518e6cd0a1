package lockcoretest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var start = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

// inMemory is the engine in memory with its clock.
type inMemory struct {
	*lockcoretest.Engine
	clock *lockcoretest.Clock
}

func (m inMemory) Travel(_ context.Context, _ string, d time.Duration) error {
	m.clock.Advance(d)
	return nil
}

func newInMemory() inMemory {
	clock := lockcoretest.NewClock(start)
	return inMemory{lockcoretest.NewEngine(clock.Now), clock}
}

func TestEngineInMemoryConforms(t *testing.T) {
	t.Parallel()
	lockcoretest.Conformance(t, func(*testing.T) lockcoretest.Harness { return newInMemory() })
}

func TestEveryRuleInvariantAndOutcomeHasAScenario(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	var told []rules.Outcome
	for _, s := range lockcoretest.Scenarios() {
		require.False(t, names[s.Name], "two scenarios named %q", s.Name)
		names[s.Name] = true
		watch := &watcher{inMemory: newInMemory()}
		s.Run(t, watch, "r")
		told = append(told, watch.told...)
	}
	for _, outcome := range []rules.Outcome{
		rules.Granted, rules.Joined, rules.Again, rules.Queued, rules.Busy, rules.Full, rules.Lost, rules.Superseded, rules.Deadlock,
	} {
		require.Contains(t, told, outcome)
	}
	for _, about := range []string{
		"rule 1", "rule 2", "rule 3", "rule 4", "rule 5", "rule 6", "I1", "I2", "I3", "I4", "I5", "I6", "I8", "I9", "I10",
		"settle", "claim", "draining", "expiry", "renew", "leave", "release", "withdraw", "RenewAll", "Read", "List",
	} {
		require.Condition(t, func() bool {
			for name := range names {
				if len(name) > len(about) && name[:len(about)+1] == about+"/" {
					return true
				}
			}
			return false
		}, "no scenario about %s", about)
	}
}

// watcher keeps what acquires were told.
type watcher struct {
	inMemory
	told []rules.Outcome
}

func (w *watcher) Acquire(ctx context.Context, op rules.Acquire) (rules.Document, error) {
	d, err := w.inMemory.Acquire(ctx, op)
	w.told = append(w.told, d.Last.Outcome)
	return d, err
}
