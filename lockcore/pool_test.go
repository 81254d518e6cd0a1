package lockcore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Eight slow queries of the application use all four connections of a client that it shares with a Locker.
func TestSession_PoolIsFull_LossNamesThePool(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	coll := accountsOf(t, options.Client().SetMaxPoolSize(4).SetMonitor(&event.CommandMonitor{
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == "ping" { // a slow query: it keeps its connection until the monitor returns
				<-release
			}
		}}))
	l, err := lockcore.New(coll, lockcore.Config{TTL: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	session := l.Steps().NewSession(t.Context(), enter(t, l.Steps(), request("a", lockcore.Exclusive("r"))))
	var slow sync.WaitGroup
	for range 8 {
		slow.Go(func() {
			_ = coll.Database().RunCommand(context.WithoutCancel(t.Context()), bson.D{{Key: "ping", Value: 1}}).Err()
		})
	}
	<-session.Context().Done()
	close(release)
	slow.Wait()
	var lost *lockcore.LostError
	require.ErrorAs(t, context.Cause(session.Context()), &lost)
	require.Contains(t, lost.Reason, "no connection of the MongoDB client's pool was free")
}

// The loss names the pool however the lease is renewed: by a statement, or by a swap of the line.
func TestSession_PoolIsFull_EveryLossNamesThePool(t *testing.T) {
	type lease struct {
		parties  int
		upgraded bool
		ttl      time.Duration
	}
	cases := map[string]lease{
		"one":            {1, false, 3 * time.Second},
		"upgraded":       {1, true, 3 * time.Second},
		"upgraded, long": {1, true, 30 * time.Second},
		"many":           {25, false, 3 * time.Second},
		"many, long":     {25, false, 30 * time.Second},
	}
	eachCase(t, cases, func(t *testing.T, l *lockcore.Steps, db *faultStore, c lease) {
		var first *lockcore.Session
		for i := range c.parties {
			s := tryAcquire(t, l, withTTL(c.ttl, request(fmt.Sprint("holder/", i), lockcore.Shared("r"))))
			if c.upgraded {
				require.NoError(t, s.Upgrade(t.Context(), "r"))
			}
			if first == nil {
				first = s
			}
		}
		db.set(func(ctx context.Context, _ command) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", store.ErrNotSent, topology.WaitQueueTimeoutError{Wrapped: ctx.Err()})
		}, nil)
		elapse(2 * c.ttl)
		require.ErrorContains(t, first.Lost(), "no connection of the MongoDB client's pool was free")
	})
}
