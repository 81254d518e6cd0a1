package party_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// documents is a store in memory.
type documents interface {
	Document(resource string) rules.Document
}

func waitersOf(s documents, resource string) func() int {
	return func() int { return len(s.Document(resource).Waiters) }
}

func eventually(t *testing.T, n int, count func() int, why string) {
	t.Helper()
	require.Eventually(t, func() bool { return count() == n }, 10*time.Second, time.Millisecond, why)
}

// byForce releases by force the holds that a lock ID has on the resources of r, each by its first
// fence.
func byForce(ctx context.Context, l *party.Locker, r party.Release) (held []string, err error) {
	names := r.Resources
	for s, err := range l.Status(ctx, party.Filter{LockID: r.LockID, States: []party.State{party.StateHolding}}) {
		if err == nil && slices.Contains(names, s.Resource) {
			var one []string
			r.Resources, r.FirstFence = []string{s.Resource}, s.FirstFence
			one, err = l.ReleaseHeld(ctx, r)
			held = append(held, one...)
		}
		if err != nil {
			return held, err
		}
	}
	return held, nil
}

func (s *faultStore) renews(string) condition { return renews }

// acquireOp is the operation of a request that is always the first of its part.
func acquireOp(resource, lockID, mode string) rules.Acquire {
	return rules.Acquire{
		Resource: resource, Call: "another process", LockID: lockID, Part: "p", Order: 1, Mode: mode, TTL: 3_600_000, HoldTTL: 3_600_000,
	}
}
