package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Enter that queues and waits a moment: the claim is made between the two.
func TestClaimBetweenEnterAndItsWaitIsFound(t *testing.T) {
	t.Parallel()
	e := hooked()
	l := on(t, e, lockcore.Config{})
	a, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	first := true
	e.acquired = func(op engine.Acquire, d engine.Document) {
		if first && d.Last.Outcome == engine.Queued {
			first = false
			_ = a.Release(context.Background())
		}
	}
	req := one("b", lockcore.Exclusive("r"))
	req.Part, req.Order, req.MaxWait = "p", lockcore.Order{Schedule: 1}, 200*time.Millisecond
	_, err = l.Enter(t.Context(), req, true)
	require.NoError(t, err)
}

func TestWrongLayoutIsNoUnknownOutcome(t *testing.T) {
	e := &layoutEngine{hookEngine: hooked()}
	l := on(t, e, lockcore.Config{})
	_, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NotErrorIs(t, err, lockcore.ErrUnknownOutcome)
}

type layoutEngine struct{ *hookEngine }

func (e *layoutEngine) Acquire(context.Context, engine.Acquire) (engine.Document, error) {
	return engine.Document{}, &engine.LayoutError{Collection: "c", Found: "other"}
}
