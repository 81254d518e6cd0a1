package lockcore_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

func TestDocumentThatComesMeanwhileIsNotTakenForAHigherFence(t *testing.T) {
	uri := os.Getenv("LOCKSTEP_MONGODB_URI")
	if uri == "" {
		t.Skip()
	}
	other, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	defer other.Disconnect(context.Background())
	name := "rev_" + time.Now().Format("150405.000")
	oc := other.Database("rev1").Collection(name)
	defer oc.Drop(context.Background())
	var once atomic.Bool
	mon := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "update" && once.CompareAndSwap(false, true) {
			_, _ = oc.InsertOne(context.Background(), bson.D{{Key: "_id", Value: 1}})
		}
	}}
	c, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(mon))
	require.NoError(t, err)
	defer c.Disconnect(context.Background())
	err = lockcore.UpdateFenced(t.Context(), c.Database("rev1").Collection(name), lockcore.Lease{Resource: "r", Fence: 7},
		bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}})
	var f *lockcore.FencedError
	require.False(t, errors.As(err, &f), "%v", err)
}

// The stream is on; the read that a change asks for fails once.
func TestFailedReadIsRepeatedSoonWhileStreaming(t *testing.T) {
	t.Parallel()
	e := &failRead{watchEngine: &watchEngine{hookEngine: hooked()}}
	var tell atomic.Value
	e.watch = func(ctx context.Context, ready func(), changed func(string)) error {
		ready()
		tell.Store(changed)
		<-ctx.Done()
		return ctx.Err()
	}
	here, elsewhere := on(t, e, lockcore.Config{}), on(t, e.Engine, lockcore.Config{})
	a, err := elsewhere.TryAcquire(t.Context(), one("a", lockcore.Exclusive("r")))
	require.NoError(t, err)
	next := acquireLater(t.Context(), here, one("b", lockcore.Exclusive("r")))
	eventually(t, 1, waitersOf(e.Engine, "r"), "")
	time.Sleep(1300 * time.Millisecond) // after the first search
	e.fail.Store(true)
	require.NoError(t, a.Release(t.Context()))
	tell.Load().(func(string))("r")
	start := time.Now()
	require.NoError(t, (<-next).err)
	require.Less(t, time.Since(start), time.Second)
}

type failRead struct {
	*watchEngine
	fail atomic.Bool
}

func (e *failRead) Read(ctx context.Context, names ...string) ([]engine.Document, error) {
	if e.fail.CompareAndSwap(true, false) {
		return nil, errCut
	}
	return e.Engine.Read(ctx, names...)
}

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
	return engine.Document{}, &engine.LayoutError{Collection: "c", Reason: "other"}
}
