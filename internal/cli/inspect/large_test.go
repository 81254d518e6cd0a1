package inspect_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Reading the documents is linear, and so must be what Resources makes of them: the limit is a multiple of the time that reading takes.
func TestResources_ManyWaitersAndDrainingParts_AreListedInLinearTime(t *testing.T) { //nolint:paralleltest // it measures time
	const n = 30_000
	now := time.Now().UTC()
	waiting := &rules.Document{ID: "waiting", Version: rules.Version{N: 1, R: "r"}, Attn: []string{"X"}}
	draining := &rules.Document{ID: "draining", Version: rules.Version{N: 1, R: "r"}, Attn: []string{"draining"}}
	for i := range n {
		lockID := fmt.Sprint("party/", i)
		waiting.Waiters = append(waiting.Waiters, rules.Waiter{
			LockID: lockID, Part: "p", Order: 1, Mode: rules.Exclusive, Since: now, ExpiresAt: now.Add(time.Hour), OverdueAt: now.Add(time.Hour),
		})
		draining.Entries = append(draining.Entries, rules.Entry{
			LockID: lockID, Part: "p", Order: 1, Mode: rules.Shared, State: rules.StateDraining, Fence: 1, FirstFence: 1, TTL: 1, ExpiresAt: now.Add(time.Hour),
		})
	}
	memory := lockcoretest.NewStore(time.Now)
	require.NoError(t, memory.Put(waiting))
	require.NoError(t, memory.Put(draining))
	l, err := party.NewWithStore(memory, lockcore.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close(t.Context())) }()
	site := &inspect.Site{Locker: l}
	for _, resource := range []string{"waiting", "draining"} {
		began := time.Now()
		for _, err := range l.Status(t.Context(), lockcore.Filter{Resource: resource}) {
			require.NoError(t, err)
		}
		read := time.Since(began)
		began = time.Now()
		found, err := site.Resources(t.Context(), lockcore.Filter{Resource: resource})
		require.NoError(t, err)
		require.Equal(t, n, len(found[0].Waiters)+len(found[0].Holders))
		t.Logf("%s: %s to read, %s to list", resource, read, time.Since(began))
		require.Less(t, time.Since(began), 5*read+time.Second, resource)
	}
}
