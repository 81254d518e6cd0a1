package lockcore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// errCut is what a driver says of a connection that was cut: nobody knows whether the command took effect.
var errCut = errors.New("connection cut")

// cutEngine is the engine in memory, and may lose its answers.
type cutEngine struct {
	*lockcoretest.Engine
	mu sync.Mutex
	// lose is how many of the next answers are lost after the operation was applied; negative loses all.
	lose int
	sent int
	// refusing says that nothing is applied, reads included.
	refusing bool
}

func (e *cutEngine) answer(d rules.Document, err error) (rules.Document, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent++
	if e.lose != 0 {
		e.lose--
		return rules.Document{}, errCut
	}
	return d, err
}

// refuse has everything fail, or not any more.
func (e *cutEngine) refuse(all bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refusing = all
}

func (e *cutEngine) refuses() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refusing {
		e.sent++
	}
	return e.refusing
}

// commands is how many operations were asked for.
func (e *cutEngine) commands() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent
}

func (e *cutEngine) Read(ctx context.Context, names ...string) ([]rules.Document, error) {
	e.mu.Lock()
	refusing := e.refusing
	e.mu.Unlock()
	if refusing {
		return nil, errCut
	}
	return e.Engine.Read(ctx, names...)
}

func (e *cutEngine) cut(answers int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lose = answers
}

func (e *cutEngine) Acquire(ctx context.Context, op rules.Acquire) (rules.Document, error) {
	if e.refuses() {
		return rules.Document{}, errCut
	}
	return e.answer(e.Engine.Acquire(ctx, op))
}

func (e *cutEngine) Renew(ctx context.Context, op rules.Renew) (rules.Document, error) {
	return e.answer(e.Engine.Renew(ctx, op))
}

func (e *cutEngine) Leave(ctx context.Context, op rules.Leave) (rules.Document, error) {
	return e.answer(e.Engine.Leave(ctx, op))
}

func (e *cutEngine) Release(ctx context.Context, op rules.Release) (rules.Document, error) {
	return e.answer(e.Engine.Release(ctx, op))
}

func onCutEngine(t *testing.T, cfg lockcore.Config) (*lockcore.Locker, *cutEngine) {
	t.Helper()
	e := &cutEngine{Engine: lockcoretest.NewEngine(time.Now)}
	return on(t, e, cfg), e
}

func TestLostAnswerIsAskedForAgainAndEndsAsIfItHadRunOnce(t *testing.T) {
	t.Parallel()
	l, e := onCutEngine(t, lockcore.Config{})
	e.cut(2)
	leases, err := l.Enter(t.Context(), one("a", lockcore.Exclusive("r")), false)
	require.NoError(t, err)
	require.Equal(t, 3, e.sent)
	require.Len(t, e.Document("r").Entries, 1)
	require.Equal(t, e.Document("r").Entries[0].Fence, leases[0].Fence, "one grant, not three")
	e.cut(1)
	require.NoError(t, l.Leave(t.Context(), leases...))
	require.Empty(t, e.Document("r").Entries)
}

func TestOutcomeThatStaysUnknownIsSaidAndCleanedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, e := onCutEngine(t, lockcore.Config{})
		e.cut(-1)
		_, err := l.Enter(t.Context(), one("a", lockcore.Exclusive("r")), false)
		var unknown *lockcore.UnknownOutcomeError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, lockcore.ErrUnknownOutcome)
		require.ErrorIs(t, err, errCut)
		require.NotErrorIs(t, err, lockcore.ErrBusy)
		require.Equal(t, "acquire", unknown.Op)
		e.cut(0)
		_, err = l.Enter(t.Context(), one("b", lockcore.Exclusive("r")), false)
		require.NoError(t, err)
	})
}

func TestOutageLosesTheLockOnlyWhenThePromiseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, e := onCutEngine(t, lockcore.Config{TTL: 3 * time.Second})
		s, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
		require.NoError(t, err)
		first := s.Leases()[0]
		e.cut(4) // one renewal, its repeats, and one more
		require.Eventually(t, func() bool { return s.Leases()[0].Valid() && !first.Valid() }, time.Minute, 10*time.Millisecond, "it is renewed after the outage")
		require.NoError(t, s.Context().Err())

		e.cut(-1)
		<-s.Context().Done()
		var lost *lockcore.LostError
		require.ErrorAs(t, context.Cause(s.Context()), &lost)
		require.Contains(t, lost.Reason, "could not be renewed in time")
		e.cut(0)
		require.NoError(t, s.Release(t.Context()))
	})
}
