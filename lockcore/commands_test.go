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
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/internal/mongoengine"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// wire has taken down every command that was sent.
type wire struct {
	mu   sync.Mutex
	sent []bson.Raw
}

func (w *wire) started(_ context.Context, e *event.CommandStartedEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, append(bson.Raw{}, e.Command...))
}

// take returns the commands since the last time.
func (w *wire) take() []bson.Raw {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sent
	w.sent = nil
	return sent
}

// sends fails the test unless what f does takes these commands.
func (w *wire) sends(t *testing.T, what string, f func(), commands ...string) {
	t.Helper()
	w.take()
	f()
	var names []string
	for _, c := range w.take() {
		first, err := c.IndexErr(0)
		require.NoError(t, err)
		names = append(names, first.Key())
	}
	require.Equal(t, commands, names, what)
}

// careless is a collection of a client that asks for no guarantees, and whose commands are taken down.
func careless(t *testing.T) (*mongo.Collection, *wire) {
	t.Helper()
	w := &wire{}
	unjournaled := false
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)).
		SetMonitor(&event.CommandMonitor{Started: w.started}).
		SetWriteConcern(&writeconcern.WriteConcern{W: 1, Journal: &unjournaled}).
		SetReadConcern(readconcern.Local()).
		SetReadPreference(readpref.Nearest()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.Background())) })
	return c.Database(testenv.Mongo(t).Name()).Collection("locks"), w
}

func TestEachOperationIsOneCommandPerResource(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	l, err := lockcore.New(coll, lockcore.Config{})
	require.NoError(t, err)
	three := []lockcore.Resource{lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2"), lockcore.Exclusive("r/3")}
	enter := func(lockID string, queue bool, res ...lockcore.Resource) []lockcore.Lease {
		req := one(lockID, res...)
		req.Order.Attempt = 1
		leases, err := l.Enter(t.Context(), req, queue)
		if queue {
			require.ErrorIs(t, err, lockcore.ErrBusy)
		} else {
			require.NoError(t, err)
		}
		return leases
	}
	enter("warm up", false, lockcore.Exclusive("looks at the layout, once"))

	const write = "findAndModify"
	var leases []lockcore.Lease
	w.sends(t, "acquire", func() { leases = enter("a", false, three[0]) }, write)
	w.sends(t, "acquire again", func() { leases = enter("a", false, three[0]) }, write)
	w.sends(t, "queue", func() { enter("b", true, three[0]) }, write)
	w.sends(t, "renew", func() { _, err = l.Renew(t.Context(), leases...) }, write)
	require.NoError(t, err)
	w.sends(t, "leave", func() { err = l.Leave(t.Context(), leases...) }, write)
	require.NoError(t, err)
	w.sends(t, "release", func() {
		err = l.Release(t.Context(), lockcore.Release{LockID: "b", Resources: []string{"r/1"}, Order: lockcore.LastAttempt(0)})
	}, write)
	require.NoError(t, err)
	w.sends(t, "acquire three", func() { leases = enter("c", false, three...) }, "update", "aggregate")
	w.sends(t, "renew three", func() { _, err = l.Renew(t.Context(), leases...) }, "update")
	require.NoError(t, err)
	w.sends(t, "release three by force", func() {
		_, err = byForce(t.Context(), l, lockcore.Release{Force: true, LockID: "c", Resources: []string{"r/1", "r/2", "r/3"}, Reason: "by hand"})
	}, "aggregate", write, write, write)
	require.NoError(t, err)
}

// If no other is in the way, what is sent has a short form: the whole pipelines have ten times the operators.
func TestIfNobodyIsInTheWayShortFormsAreSent(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	eng := mongoengine.New(coll, 24*time.Hour)
	_, err := eng.Acquire(t.Context(), acquire("looks at the layout, once", "a", rules.Exclusive))
	require.NoError(t, err)
	w.take()
	short := func(what string, do func() (rules.Document, error)) {
		t.Helper()
		d, err := do()
		require.NoError(t, err, what)
		require.Equal(t, rules.Granted, d.Last.Outcome, what)
		commands := w.take()
		sent := len(commands) // and not the commands, which are pages
		require.Equal(t, 1, sent, what)
		stages, err := commands[0].Lookup("update").Array().Values()
		require.NoError(t, err, what)
		require.LessOrEqual(t, len(stages), 5, what)
	}
	for name, changes := range map[string]func(op *rules.Acquire){
		"plain": func(*rules.Acquire) {},
		"step":  func(op *rules.Acquire) { op.Label, op.Within, op.Reacquire = "run", "w", true },
		"saga":  func(op *rules.Acquire) { op.Label, op.Persist = "run", true },
	} {
		for order := range int64(3) { // by the same party, whose endings are remembered
			op := acquire(name, name, rules.Exclusive)
			op.Part, op.Order = fmt.Sprint("part/", order), 1
			if op.Queue, op.WaiterTTL, op.MaxWaiters = true, 3_600_000, 10; name == "saga" {
				op.Order = 1 + order
			}
			changes(&op)
			short(name, func() (rules.Document, error) { return eng.Acquire(t.Context(), op) })
			short(name+" leaves", func() (rules.Document, error) {
				return eng.Leave(t.Context(), rules.Leave{Resource: name, LockID: op.LockID, Label: op.Label, Part: op.Part, Order: op.Order})
			})
			if op.Persist {
				short(name+" commits", func() (rules.Document, error) {
					return eng.Release(t.Context(), rules.Release{Resource: name, LockID: op.LockID, Label: op.Label, Order: op.Order, Used: op.Order})
				})
			}
		}
	}
}

func TestWithdrawalIsOneCommandPerResource(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	eng := mongoengine.New(coll, 24*time.Hour)
	_, err := eng.Acquire(t.Context(), acquire("r", "a", rules.Exclusive))
	require.NoError(t, err)
	w.sends(t, "withdraw", func() { _, err = eng.Withdraw(t.Context(), rules.Withdraw{Resource: "r", LockID: "b"}) }, "findAndModify")
	require.NoError(t, err)
	w.sends(t, "read", func() { _, err = eng.Read(t.Context(), "r", "s", "t") }, "aggregate")
	require.NoError(t, err)
}

func acquire(resource, lockID, mode string) rules.Acquire {
	return rules.Acquire{Resource: resource, LockID: lockID, Part: "p", Order: 1, Mode: mode, TTL: 3_600_000, HoldTTL: 3_600_000}
}

// locked makes n documents, of which every second is held exclusively and the others by two who share, and returns
// the renewals of all holds.
func locked(t *testing.T, eng *mongoengine.Engine, coll *mongo.Collection, n int) []rules.Renew {
	t.Helper()
	var ops []rules.Renew
	for _, op := range []rules.Acquire{acquire("0", "a", rules.Exclusive), acquire("1", "a", rules.Shared), acquire("1", "b", rules.Shared)} {
		_, err := eng.Acquire(t.Context(), op)
		require.NoError(t, err)
	}
	var templates [2]bson.D
	for i := range templates {
		require.NoError(t, coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: fmt.Sprint(i)}}).Decode(&templates[i]))
	}
	var docs []any
	for i := range n {
		d := bson.D{{Key: "_id", Value: fmt.Sprint(i)}}
		for _, e := range templates[i%2] {
			if e.Key != "_id" {
				d = append(d, e)
			}
		}
		if i >= len(templates) {
			docs = append(docs, d)
		}
		ops = append(ops, rules.Renew{Resource: fmt.Sprint(i), LockID: "a", Part: "p", Order: 1})
		if i%2 == 1 {
			ops = append(ops, rules.Renew{Resource: fmt.Sprint(i), LockID: "b", Part: "p", Order: 1})
		}
	}
	_, err := coll.InsertMany(t.Context(), docs)
	require.NoError(t, err)
	return ops
}

// renewalsPerCommand is how many resources one command renews.
const renewalsPerCommand = 500

func TestManyRenewalsAreFewCommandsAndOneReadWhereSomethingIsLost(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	eng := mongoengine.New(coll, 24*time.Hour)
	ops := locked(t, eng, coll, 2*renewalsPerCommand)
	var renewed []bool
	var err error
	w.sends(t, "renew all", func() { renewed, err = eng.RenewAll(t.Context(), ops) }, "update", "update")
	require.NoError(t, err)
	require.NotContains(t, renewed, false)

	_, err = eng.Leave(t.Context(), rules.Leave{Resource: "0", LockID: "a", Part: "p", Order: 1})
	require.NoError(t, err)
	ops = ops[:100]
	w.sends(t, "renew all but one", func() { renewed, err = eng.RenewAll(t.Context(), ops) }, "update", "aggregate")
	require.NoError(t, err)
	require.False(t, renewed[0], "it has left")
	require.NotContains(t, renewed[1:], false, "the others stand")
}

func TestTenThousandRenewalsAreAtMostTwentyCommands(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	eng := mongoengine.New(coll, 24*time.Hour)
	ops := locked(t, eng, coll, 10_000*2/3+1)
	require.GreaterOrEqual(t, len(ops), 10_000)
	w.take()
	renewed, err := eng.RenewAll(t.Context(), ops)
	require.NoError(t, err)
	require.NotContains(t, renewed, false)
	require.LessOrEqual(t, len(w.take()), 20)
}

// What is said to be held was written by a majority, to the journal, whatever the caller's client asks for: I7.
func TestEveryWriteAsksForAMajorityAndTheJournalAndEveryReadForAMajority(t *testing.T) {
	t.Parallel()
	coll, w := careless(t)
	eng := mongoengine.New(coll, 24*time.Hour)
	_, err := eng.Read(t.Context(), "looks at the layout, once")
	require.NoError(t, err)
	_, err = eng.Acquire(t.Context(), acquire("looks at the layout, once", "a", rules.Exclusive))
	require.NoError(t, err)
	w.take()
	for name, send := range map[string]func() error{
		"acquire": func() error { _, err := eng.Acquire(t.Context(), acquire("r", "a", rules.Exclusive)); return err },
		"renew":   func() error { _, err := eng.Renew(t.Context(), rules.Renew{Resource: "r", LockID: "a"}); return err },
		"leave":   func() error { _, err := eng.Leave(t.Context(), rules.Leave{Resource: "r", LockID: "b"}); return err },
		"release": func() error {
			_, err := eng.Release(t.Context(), rules.Release{Resource: "r", LockID: "b"})
			return err
		},
		"withdraw": func() error {
			_, err := eng.Withdraw(t.Context(), rules.Withdraw{Resource: "r", LockID: "b"})
			return err
		},
		"renew all": func() error {
			_, err := eng.RenewAll(t.Context(), []rules.Renew{{Resource: "r", LockID: "a", Part: "p", Order: 1}})
			return err
		},
		"read": func() error { _, err := eng.Read(t.Context(), "r"); return err },
		"list": func() error {
			for _, err := range eng.List(t.Context(), rules.Query{}) {
				return err
			}
			return nil
		},
	} {
		require.NoError(t, send(), name)
	}
	writes, reads := 0, 0
	for _, c := range w.take() {
		switch name := c.Index(0).Key(); name {
		case "findAndModify", "update":
			writes++
			require.Equal(t, "majority", c.Lookup("writeConcern", "w").StringValue(), name)
			require.True(t, c.Lookup("writeConcern", "j").Boolean(), name)
		case "aggregate":
			reads++
			require.Equal(t, "majority", c.Lookup("readConcern", "level").StringValue(), name)
			if pref, err := c.LookupErr("$readPreference", "mode"); err == nil {
				require.Equal(t, "primary", pref.StringValue(), name)
			}
		}
	}
	require.GreaterOrEqual(t, writes, 6) // in any order: a short form that does not apply is one more
	// A batch that comes after the release reads why.
	require.GreaterOrEqual(t, reads, 2)
}
