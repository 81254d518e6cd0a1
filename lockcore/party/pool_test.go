package party_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore/party"
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
	l, err := party.New(coll, party.Config{TTL: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	session := l.NewSession(t.Context(), enter(t, l, request("a", party.Exclusive("r"))))
	var slow sync.WaitGroup
	for range 8 {
		slow.Go(func() {
			_ = coll.Database().RunCommand(context.WithoutCancel(t.Context()), bson.D{{Key: "ping", Value: 1}}).Err()
		})
	}
	<-session.Context().Done()
	close(release)
	slow.Wait()
	var lost *party.LostError
	require.ErrorAs(t, context.Cause(session.Context()), &lost)
	require.Contains(t, lost.Reason, "no connection of the MongoDB client's pool was free")
}
