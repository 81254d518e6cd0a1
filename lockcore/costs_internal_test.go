package lockcore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// manyShared returns a document with n shared holders and n exclusive waiters.
func manyShared(n int) *rules.Document {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	d := &rules.Document{ID: "r", At: now}
	for i := range n {
		d.Entries = append(d.Entries, rules.Entry{
			Caller: rules.Caller{LockID: fmt.Sprint("holder", i), Part: "p", Order: 1}, Mode: rules.Shared, State: rules.StateRunning,
			ExpiresAt: now.Add(time.Minute), Fence: int64(i + 1), FirstFence: int64(i + 1),
		})
		d.Waiters = append(d.Waiters, rules.Waiter{
			Caller: rules.Caller{LockID: fmt.Sprint("waiter", i), Part: "p", Order: 1}, Mode: rules.Exclusive, Limit: 1, Since: now,
			OverdueAt: now.Add(time.Minute), ExpiresAt: now.Add(time.Minute),
		})
	}
	return d
}

// allocated returns the bytes that a function allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Four times as many holders and waiters may allocate about four times as much, not sixteen times.
func TestStatus_ManyHoldersAndWaiters_AllocatesInProportion(t *testing.T) {
	of := func(n int) uint64 {
		d := manyShared(n)
		return allocated(func() { require.Len(t, statusesOf(d), 2*n) })
	}
	small, large := of(250), of(1000)
	require.Less(t, float64(large)/float64(small), 8.0, "%d and %d bytes", small, large)
}

// What a waiter keeps of its busy answer does not depend on the number of holders.
func TestBusyError_ManyHolders_KeepsFew(t *testing.T) {
	const n = 1000
	d := manyShared(n)
	e := busyBy(&rules.Acquire{Resource: "r", Caller: rules.Caller{LockID: "w"}, Mode: rules.Exclusive}, d)
	require.Len(t, e.Holders, mostHolders)
	require.LessOrEqual(t, cap(e.Holders), 2*mostHolders)
	require.Equal(t, n, e.Blocking)
	require.Equal(t, time.Minute, e.RetryIn)
	require.ErrorContains(t, e, fmt.Sprintf("and %d more", n-mostNamed))
}
