package lockcore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The call is repeated, and finds that it was carried out already.
func TestEnd_AnswerLost_ReportsEnded(t *testing.T) {
	t.Parallel()
	for name, force := range map[string]bool{"by the party": false, "by force": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, db := inMemory(t, lockcore.Config{})
			leases, err := l.Enter(t.Context(), asks("holder", 1, lockcore.Exclusive("r")))
			require.NoError(t, err)
			release := lockcore.Release{LockID: "holder", Resources: []string{"r"}, FirstFence: leases[0].FirstFence, Reason: "a drill", Force: force, Now: force}
			db.set(nil, times(1, cutting(), of(kindSwap)))
			ended, err := l.End(t.Context(), release)
			require.NoError(t, err)
			require.True(t, ended)
			for _, e := range db.Document("r").Entries {
				require.False(t, e.Holds(), "%+v", e)
			}
			ended, err = l.End(t.Context(), release)
			require.NoError(t, err)
			require.False(t, ended, "there is nothing left to end")
		})
	}
}

func TestLeaveQueue_AnswerLost_ReportsEnded(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	_, err := l.Enter(t.Context(), asks("holder", 1, lockcore.Exclusive("r")))
	require.NoError(t, err)
	_, err = l.Enter(t.Context(), asks("waiter", 1, lockcore.Exclusive("r")))
	require.ErrorIs(t, err, lockcore.ErrBusy)
	request := lockcore.Lease{Resource: "r", LockID: "waiter", Part: "1/Debit", Order: lockcore.Order{Schedule: 1, Attempt: 1}}
	db.set(nil, times(1, cutting(), of(kindSwap)))
	ended, err := l.LeaveQueue(t.Context(), request)
	require.NoError(t, err)
	require.True(t, ended)
	require.Empty(t, db.Document("r").Waiters)
	ended, err = l.LeaveQueue(t.Context(), request)
	require.NoError(t, err)
	require.False(t, ended, "there is nothing left to end")
}

func TestEnd_SeveralResources_IsRefused(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	_, err := l.Enter(t.Context(), asks("holder", 1, lockcore.Exclusive("a"), lockcore.Exclusive("b")))
	require.NoError(t, err)
	_, err = l.End(t.Context(), lockcore.Release{LockID: "holder", Resources: []string{"a", "b"}, Order: lockcore.LastAttempt(1)})
	require.ErrorIs(t, err, lockcore.ErrInvalid)
	require.ErrorContains(t, err, "len(Release.Resources)")
	require.NotEmpty(t, db.Document("a").Entries)
	require.NotEmpty(t, db.Document("b").Entries)
}

// The document changes between the read and the write of the call, which is then repeated. No answer was lost.
func TestLeaveQueue_ConflictOfNoRequest_IsNotEnded(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	other := newLocker(t, db, lockcore.Config{})
	leases := enter(t, other, request("holder", lockcore.Exclusive("r")))
	conflict := func(context.Context, command) error { leave(t, other, leases...); return nil }
	db.set(times(1, conflict, of(kindSwap)), nil)
	ended, err := l.LeaveQueue(t.Context(), lockcore.Lease{Resource: "r", LockID: "nobody", Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1}})
	require.NoError(t, err)
	require.False(t, ended)
}

// The waiter becomes the holder between the read and the write of the call.
func TestLeaveQueue_BecameAHold_IsNotEnded(t *testing.T) {
	t.Parallel()
	l, db := inMemory(t, lockcore.Config{})
	other := newLocker(t, db, lockcore.Config{})
	holder := request("holder", lockcore.Exclusive("r"))
	holder.Run = "run"
	leases := enter(t, other, holder)
	_, err := other.Enter(t.Context(), holdOnly("waiter", 1, lockcore.Exclusive("r")))
	require.ErrorIs(t, err, lockcore.ErrBusy)
	leaves := func() { leave(t, other, leases...) }
	db.set(times(1, func(context.Context, command) error { leaves(); return nil }, of(kindSwap)), nil)
	ended, err := l.LeaveQueue(t.Context(), lockcore.Lease{Resource: "r", LockID: "waiter", Run: "run", Part: "p", Order: lockcore.Order{Schedule: 1, Attempt: 1}})
	require.NoError(t, err)
	require.Len(t, db.Document("r").Entries, 1)
	require.False(t, ended)
}
