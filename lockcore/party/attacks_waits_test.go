package party_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Enter that queues and waits a moment: the claim is made between the two.
func TestClaimBetweenEnterAndItsWaitIsFound(t *testing.T) {
	t.Parallel()
	e := newFaultStore()
	l := newLocker(t, e, party.Config{})
	leases, err := l.Enter(t.Context(), request("a", party.Exclusive("r")), false)
	require.NoError(t, err)
	e.set(nil, times(1, func(ctx context.Context, _ command) error {
		err := change(ctx, e.Store, rules.Leave{Resource: "r", LockID: "a", Part: leases[0].Part, Order: 1})
		return err
	}, queues("b")))
	req := request("b", party.Exclusive("r"))
	req.Part, req.Order, req.MaxWait = "p", party.Order{Schedule: 1}, 2*time.Second
	_, err = l.Enter(t.Context(), req, true)
	require.NoError(t, err)
}
