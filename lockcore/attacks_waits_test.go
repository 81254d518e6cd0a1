package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Enter that queues and waits a moment: the claim is made between the two.
func TestClaimBetweenEnterAndItsWaitIsFound(t *testing.T) {
	t.Parallel()
	e := hooked()
	l := on(t, e, lockcore.Config{})
	a, err := l.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	first := true
	e.acquired = func(op rules.Acquire, d rules.Document) {
		if first && d.Last.Outcome == rules.Queued {
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

func (e *layoutEngine) Acquire(context.Context, rules.Acquire) (rules.Document, error) {
	return rules.Document{}, &rules.LayoutError{Collection: "c", Found: "other"}
}
