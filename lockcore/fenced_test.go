package lockcore_test

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// account is a document whose writers hold its lock.
func account(t *testing.T) (write func(lockcore.Lease) error, stored func() bson.M) {
	t.Helper()
	coll := testenv.Mongo(t).Collection("accounts")
	byID := bson.D{{Key: "_id", Value: 42}}
	_, err := coll.InsertOne(t.Context(), byID)
	require.NoError(t, err)
	n := 0
	return func(lease lockcore.Lease) error {
			n++
			return lockcore.UpdateFenced(t.Context(), coll, lease, byID, bson.D{
				{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}, {Key: "$push", Value: bson.D{{Key: "log", Value: lease.Fence}}}})
		}, func() bson.M {
			var d bson.M
			require.NoError(t, coll.FindOne(t.Context(), byID).Decode(&d))
			return d
		}
}

// part is a lease of a part of a saga, by its n-th attempt.
func part(t *testing.T, l *lockcore.Steps, name string, attempt uint32, change ...func(*lockcore.StepRequest)) lockcore.Lease {
	t.Helper()
	req := request("saga", lockcore.Exclusive("account/42"))
	req.Part, req.Order, req.Keep = name, lockcore.Order{Schedule: 1, Attempt: attempt}, true
	for _, f := range change {
		f(&req)
	}
	leases := confirm(t, l, req)
	return leases[0]
}

func TestUpdateFenced_EarlierAttempt_IsFenced(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, lockcore.Config{})
	write, _ := account(t)
	a, b1 := part(t, l, "a", 1), part(t, l, "b", 1)
	require.NoError(t, write(b1))
	b2 := part(t, l, "b", 2)
	require.Greater(t, b2.Fence, a.Fence)
	require.Equal(t, a.FirstFence, b2.FirstFence)
	for range 3 {
		require.NoError(t, write(b2))
		require.NoError(t, write(a), "it holds, in parallel")
	}
	fenced := errorAs[*lockcore.FencedError](t, write(b1))
	require.Equal(t, &lockcore.FencedError{Resource: "account/42", Fence: b1.Fence, By: b2.Fence}, fenced)
	b3 := part(t, l, "b", 3)
	require.NoError(t, write(b3))
	require.ErrorIs(t, write(b2), lockcore.ErrFenced)
	require.NoError(t, write(a))

	// A lease that asked for a new fence bars all before it, as compensations need it.
	undo := part(t, l, "undo b", 1, func(r *lockcore.StepRequest) { r.NewFence = true })
	require.NoError(t, write(undo))
	require.ErrorIs(t, write(a), lockcore.ErrFenced)
	require.ErrorIs(t, write(b3), lockcore.ErrFenced)
	require.NoError(t, write(part(t, l, "c", 1)))

	// So does a later hold, once it has written.
	clock.Advance(2 * time.Hour)
	next := enter(t, l, request("next", lockcore.Exclusive("account/42")))
	require.NoError(t, write(undo), "nobody has written since")
	require.NoError(t, write(next[0]))
	require.ErrorIs(t, write(undo), lockcore.ErrFenced)
}

func TestUpdateFenced_ManySteps_StoresLittle(t *testing.T) {
	t.Parallel()
	l, _, clock := withClock(t, lockcore.Config{})
	write, stored := account(t)
	first := part(t, l, "first", 1)
	for i := range 100 {
		name := fmt.Sprint("step ", i)
		part(t, l, name, 1)
		again := part(t, l, name, 2)
		require.NoError(t, write(again))
		require.NoError(t, write(again))
		require.NoError(t, l.Leave(t.Context(), again))
		clock.Advance(time.Minute)
	}
	require.NoError(t, write(first))
	fence, err := bson.Marshal(stored()[lockcore.FenceField])
	require.NoError(t, err)
	require.Less(t, len(fence), 2048)
}

// accountsOf returns a collection of a database of its own, in which a client with these options works.
func accountsOf(t *testing.T, opts *options.ClientOptions) *mongo.Collection {
	t.Helper()
	db := testenv.Mongo(t)
	client, err := mongo.Connect(opts.ApplyURI(testenv.MongoURI(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	return client.Database(db.Name()).Collection("accounts")
}

// cents is a type that only the registry of currencies can encode as text.
type cents int

func currencies() *bson.Registry {
	r := bson.NewRegistry()
	r.RegisterTypeEncoder(reflect.TypeFor[cents](), bson.ValueEncoderFunc(
		func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
			return w.WriteString(fmt.Sprintf("%d.%02d", v.Int()/100, v.Int()%100))
		}))
	return r
}

type marshaler struct{ doc bson.D }

func (m marshaler) MarshalBSON() ([]byte, error) { return bson.Marshal(m.doc) }

// UpdateFenced writes what the driver's UpdateOne writes, whatever the client's options, the shape of the update and the
// operators in it. Each update runs twice under the lease of a second attempt: the condition of the second write refers to
// what the first one stored.
func TestUpdateFenced_AnyUpdate_WritesWhatUpdateOneWrites(t *testing.T) {
	t.Parallel()
	type balance struct {
		Total   int   `json:"amount"`
		Limit   cents `json:"limit"`
		Comment string
	}
	type operators struct {
		Set balance `bson:"$set"`
		Inc bson.D  `bson:"$inc"`
	}
	d := func(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }
	item := func(sku string) bson.D { return bson.D{{Key: "sku", Value: sku}, {Key: "n", Value: 0}} }
	raw := mustMarshal(t, d("$set", d("amount", 7)))
	paid := balance{Total: 7, Limit: 1234, Comment: "paid"}
	byID := d("_id", 1)
	clients := map[string]func() *options.ClientOptions{
		// A registry remembers how it described a type first, so each client needs its own.
		"plain": func() *options.ClientOptions { return options.Client().SetRegistry(bson.NewRegistry()) },
		"JSON tags": func() *options.ClientOptions {
			return options.Client().SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{UseJSONStructTags: true})
		},
		"integers": func() *options.ClientOptions {
			return options.Client().SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{IntMinSize: true, OmitEmpty: true})
		},
		"registry": func() *options.ClientOptions { return options.Client().SetRegistry(currencies()) },
	}
	updates := map[string]struct{ filter, update any }{
		"struct under $set":   {byID, d("$set", paid)},
		"struct under $max":   {byID, d("$max", paid)},
		"pointer under $min":  {byID, d("$min", &paid)},
		"map of operators":    {byID, bson.M{"$set": paid, "$inc": bson.M{"n": 2}, "$push": bson.M{"log": paid}, "$max": bson.M{"top": 3}}},
		"typed map":           {byID, map[string]balance{"$set": paid}},
		"struct of operators": {byID, operators{paid, d("n", 3)}},
		"raw":                 {byID, bson.Raw(raw)},
		"bytes":               {bson.Raw(mustMarshal(t, byID)), raw},
		"bytes as filter":     {mustMarshal(t, byID), d("$inc", d("n", 1))},
		"struct as filter": {struct {
			Total int `json:"amount" bson:"amount"`
		}{5}, d("$inc", d("n", 1))},
		"marshaler":              {byID, marshaler{d("$mul", d("n", 2))}},
		"unset and rename":       {byID, bson.D{{Key: "$unset", Value: d("n", 1)}, {Key: "$rename", Value: d("amount", "sum")}}},
		"position":               {append(d("items.sku", "c"), byID...), d("$inc", d("items.$.n", 1))},
		"position of $elemMatch": {d("items", d("$elemMatch", item("b"))), d("$set", d("items.$.paid", true))},
		"position in $max":       {d("items.sku", "c"), d("$max", d("items.$.n", 5))},
		"all positions":          {byID, d("$inc", d("items.$[].n", 1))},
	}
	for clientName, opts := range clients {
		for updateName, u := range updates {
			t.Run(clientName+"/"+updateName, func(t *testing.T) {
				t.Parallel()
				coll := accountsOf(t, opts())
				lease := lockcore.Lease{Resource: "r", LockID: "saga", Part: "b", Fence: 12, FirstFence: 10}
				written := func(update func() error) bson.D {
					_, err := coll.DeleteMany(t.Context(), bson.D{})
					require.NoError(t, err)
					_, err = coll.InsertOne(t.Context(), bson.D{
						{Key: "_id", Value: 1}, {Key: "amount", Value: 5}, {Key: "n", Value: 1},
						{Key: "items", Value: bson.A{item("a"), item("b"), item("c")}},
					})
					require.NoError(t, err)
					for range 2 {
						require.NoError(t, update())
					}
					var doc bson.D
					only := options.FindOne().SetProjection(bson.D{{Key: lockcore.FenceField, Value: 0}})
					require.NoError(t, coll.FindOne(t.Context(), bson.D{}, only).Decode(&doc))
					return doc
				}
				want := written(func() error { _, err := coll.UpdateOne(t.Context(), u.filter, u.update); return err })
				got := written(func() error { return lockcore.UpdateFenced(t.Context(), coll, lease, u.filter, u.update) })
				require.ElementsMatch(t, want, got) // the order of the fields of a map is random
			})
		}
	}
}

func mustMarshal(t *testing.T, doc bson.D) []byte {
	t.Helper()
	raw, err := bson.Marshal(doc)
	require.NoError(t, err)
	return raw
}

// A run was reset. A step of the old run still believes that it holds the lock. It has no successor of the same part that could
// bar it: the new run does something else.
func TestUpdateFenced_RunThatWasTakenOver_IsFenced(t *testing.T) {
	t.Parallel()
	write, stored := account(t)
	oldRun := lockcore.Lease{Resource: "r", LockID: "saga", Run: "1", Part: "a", Fence: 10, FirstFence: 10}
	retried := lockcore.Lease{Resource: "r", LockID: "saga", Run: "1", Part: "b", Fence: 12, FirstFence: 10}
	newRun := lockcore.Lease{Resource: "r", LockID: "saga", Run: "2", Part: "c", Fence: 15, FirstFence: 10, LeastFence: 15}
	parallel := lockcore.Lease{Resource: "r", LockID: "saga", Run: "2", Part: "d", Fence: 17, FirstFence: 10, LeastFence: 15}
	require.NoError(t, write(oldRun))
	require.NoError(t, write(retried))
	require.NoError(t, write(parallel))
	require.NoError(t, write(newRun), "parts of the new run do not bar each other")
	for _, old := range []lockcore.Lease{oldRun, retried} {
		fenced := errorAs[*lockcore.FencedError](t, write(old))
		require.Equal(t, &lockcore.FencedError{Resource: "r", Fence: old.Fence, By: 15}, fenced)
	}
	require.EqualValues(t, bson.A{int64(10), int64(12), int64(17), int64(15)}, stored()["log"])
}

func TestUpdateFenced_UnacknowledgedWrites_AreRefused(t *testing.T) {
	t.Parallel()
	var updates atomic.Int32
	coll := accountsOf(t, options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "update" {
			updates.Add(1)
		}
	}}))
	_, err := coll.InsertOne(t.Context(), bson.M{"_id": 1, "n": 0})
	require.NoError(t, err)
	careless := coll.Clone(options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	err = lockcore.UpdateFenced(t.Context(), careless, lockcore.Lease{Resource: "r", Fence: 7}, bson.M{"_id": 1}, bson.M{"$inc": bson.M{"n": 1}})
	requireInvalid(t, err, "coll")
	require.EqualValues(t, 1, updates.Load(), "only the record of the fence was sent")
	unchanged, err := coll.CountDocuments(t.Context(), bson.M{"n": 0})
	require.NoError(t, err)
	require.EqualValues(t, 1, unchanged)
}

// betweenCommands returns a collection on which interfere runs once, after the first update: between the record of a
// fence and the update.
func betweenCommands(t *testing.T, interfere func(*mongo.Collection)) *mongo.Collection {
	t.Helper()
	var coll *mongo.Collection
	var done atomic.Bool
	coll = accountsOf(t, options.Client().SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "update" && done.CompareAndSwap(false, true) {
			interfere(coll)
		}
	}}))
	_, err := coll.InsertOne(t.Context(), bson.M{"_id": 1, "state": "old"})
	require.NoError(t, err)
	return coll
}

func TestUpdateFenced_ChangeAfterRecord_IsRespected(t *testing.T) {
	t.Parallel()
	set := func(value string) bson.M { return bson.M{"$set": bson.M{"state": value}} }
	open := bson.M{"_id": 1, "state": bson.M{"$ne": "closed"}}
	first, third := lockcore.Lease{Resource: "r", Fence: 7, FirstFence: 7}, lockcore.Lease{Resource: "r", Fence: 9, FirstFence: 7}
	second := lockcore.Lease{Resource: "r", Fence: 8, FirstFence: 7}
	thirdWrites := func(t *testing.T, coll *mongo.Collection) {
		require.NoError(t, lockcore.UpdateFenced(t.Context(), coll, third, open, set("third attempt")))
	}
	for name, c := range map[string]struct {
		lease     lockcore.Lease
		interfere func(*testing.T, *mongo.Collection)
		want      error
		state     string
	}{
		"LaterAttemptThanFirstWrites":  {first, thirdWrites, lockcore.ErrFenced, "third attempt"},
		"LaterAttemptThanSecondWrites": {second, thirdWrites, lockcore.ErrFenced, "third attempt"},
		"LaterLeaseWrites": {first, func(t *testing.T, coll *mongo.Collection) {
			require.NoError(t, lockcore.UpdateFenced(t.Context(), coll, lockcore.Lease{Resource: "r", Fence: 9}, open, set("later")))
		}, lockcore.ErrFenced, "later"},
		"LaterLeaseRecords": {first, func(t *testing.T, coll *mongo.Collection) {
			err := lockcore.UpdateFenced(t.Context(), coll, lockcore.Lease{Resource: "r", Fence: 9}, open, bson.M{"$inc": bson.M{"state": 1}})
			require.Error(t, err, "text cannot be incremented")
		}, lockcore.ErrFenced, "old"},
		"FilterMatchesNoLonger": {first, func(t *testing.T, coll *mongo.Collection) {
			_, err := coll.UpdateOne(t.Context(), bson.M{"_id": 1}, set("closed"))
			require.NoError(t, err)
		}, mongo.ErrNoDocuments, "closed"},
		"RecordIsGone": {first, func(t *testing.T, coll *mongo.Collection) {
			_, err := coll.ReplaceOne(t.Context(), bson.M{"_id": 1}, bson.M{"state": "restored", lockcore.FenceField: bson.M{"least": 3}})
			require.NoError(t, err)
		}, nil, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			coll := betweenCommands(t, func(coll *mongo.Collection) { c.interfere(t, coll) })
			err := lockcore.UpdateFenced(t.Context(), coll, c.lease, open, set("mine"))
			require.ErrorIs(t, err, c.want)
			var doc struct {
				State     string
				LockFence struct{ Least int64 } `bson:"lockFence"`
			}
			require.NoError(t, coll.FindOne(t.Context(), bson.M{"_id": 1}).Decode(&doc))
			require.Equal(t, c.state, doc.State)
			require.GreaterOrEqual(t, doc.LockFence.Least, int64(7))
		})
	}
}

// Every command is one that a router accepts on a collection that is sharded by another key, and reads what the primary has,
// whatever the collection's read concern.
func TestUpdateFenced_Commands_NeedNoShardKey(t *testing.T) {
	t.Parallel()
	var names []string
	var broken []string
	coll := accountsOf(t, options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		switch e.CommandName {
		case "findAndModify":
			broken = append(broken, "a findAndModify needs the shard key before MongoDB 7.1")
		case "find":
			if level, _ := e.Command.Lookup("readConcern", "level").StringValueOK(); level == "majority" {
				broken = append(broken, "the read waits for lagging members")
			}
		case "update":
			id, err := e.Command.LookupErr("updates", "0", "q", "$and", "1", "_id")
			if err != nil || id.Type != bson.TypeInt32 {
				broken = append(broken, "an update of one document has no exact _id: "+e.Command.String())
			}
		}
		if e.CommandName != "insert" {
			names = append(names, e.CommandName)
		}
	}})).Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	_, err := coll.InsertOne(t.Context(), bson.M{"_id": 1, "region": "eu"})
	require.NoError(t, err)
	lease := lockcore.Lease{Resource: "r", Fence: 7, FirstFence: 7}
	set := bson.M{"$set": bson.M{"n": 1}}
	require.NoError(t, lockcore.UpdateFenced(t.Context(), coll, lease, bson.M{"region": "eu"}, set))
	require.Empty(t, broken)
	require.Equal(t, []string{"find", "update", "update"}, names)
}

// A document whose record is changed by others after every read must not keep a writer busy forever.
func TestUpdateFenced_RecordKeepsChanging_EndsAfterAttempts(t *testing.T) {
	t.Parallel()
	var changes atomic.Int32
	var other *mongo.Collection
	coll := accountsOf(t, options.Client().SetMonitor(&event.CommandMonitor{Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "find" {
			n := changes.Add(1)
			_, _ = other.UpdateOne(ctx, bson.M{"_id": 1}, bson.M{"$set": bson.M{lockcore.FenceField + ".parts.other": int64(n)}})
		}
	}}))
	other = testenv.Mongo(t).Client().Database(coll.Database().Name()).Collection(coll.Name())
	_, err := coll.InsertOne(t.Context(), bson.M{"_id": 1})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	lease := lockcore.Lease{Resource: "r", Fence: 1000, FirstFence: 7, LockID: "saga", Part: "a"}
	err = lockcore.UpdateFenced(ctx, coll, lease, bson.M{"_id": 1}, bson.M{"$set": bson.M{"n": 1}})
	require.ErrorContains(t, err, "nothing was updated under fence 1000: the document kept changing in 20 attempts")
	require.NoError(t, ctx.Err())
	require.EqualValues(t, 20, changes.Load())
	require.Greater(t, time.Since(began), 100*time.Millisecond, "it pauses")
}

func TestUpdateFenced_Transaction_IsRefused(t *testing.T) {
	t.Parallel()
	coll := accountsOf(t, options.Client())
	_, err := coll.InsertOne(t.Context(), bson.M{"_id": 1})
	require.NoError(t, err)
	session, err := coll.Database().Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	ctx := mongo.NewSessionContext(t.Context(), session)
	write := func() error {
		lease := lockcore.Lease{Resource: "r", Fence: 7, FirstFence: 7}
		return lockcore.UpdateFenced(ctx, coll, lease, bson.M{"_id": 1}, bson.M{"$set": bson.M{"n": 1}})
	}
	require.NoError(t, write(), "a session without a transaction")
	require.NoError(t, session.StartTransaction())
	requireInvalid(t, write(), "ctx")
}

// After a compensation has written, the steps that its bar refuses cannot write any longer.
func TestUpdateFenced_CompensationAfterABar_BarsTheStep(t *testing.T) {
	t.Parallel()
	l, _, _ := withClock(t, lockcore.Config{})
	write, _ := account(t)
	of := func(part string, schedule uint32, saga string) lockcore.Lease {
		req := ofRun("one", part, ofSaga(saga, schedule, 1))
		req.Resources = []lockcore.Resource{lockcore.Exclusive("account/42")}
		return enter(t, l, req)[0]
	}
	raise := func(saga string, schedule uint32) {
		err := l.Raise(t.Context(), lockcore.Raise{LockID: "w", Run: "one", Saga: saga, Order: lockcore.LastAttempt(schedule), Resources: []string{"account/42"}})
		if err != nil {
			require.ErrorIs(t, err, lockcore.ErrBusy)
		}
	}
	step := of("step", 1, "1")
	require.NoError(t, write(step))
	raise("1", 1) // the step may still run
	require.NoError(t, write(step), "no compensation has written")
	leave(t, l, step)
	for schedule := uint32(2); schedule <= 3; schedule++ {
		undo := of("undo", schedule, "1")
		require.NoError(t, write(undo))
		raise("1", 1) // repeated, it changes nothing
		require.NoError(t, write(undo))
		leave(t, l, undo)
	}
	require.ErrorIs(t, write(step), lockcore.ErrFenced)

	// A step of an outer saga that runs meanwhile may still write.
	outer, inner := of("outer", 4, "2"), of("inner", 4, "2/5")
	require.NoError(t, write(outer))
	raise("2/5", 4)
	leave(t, l, inner)
	require.NoError(t, write(of("undo inner", 5, "2/5")))
	require.NoError(t, write(outer))
}

// Once a later hold has written, its least fence bars whatever an older record bars.
func TestUpdateFenced_LaterHold_DropsRecordsOfEarlierHold(t *testing.T) {
	t.Parallel()
	write, stored := account(t)
	for fence := int64(11); fence <= 14; fence++ {
		require.NoError(t, write(lockcore.Lease{Resource: "r", LockID: "saga", Part: fmt.Sprint(fence), Fence: fence, FirstFence: 10}))
	}
	require.Len(t, stored()[lockcore.FenceField].(bson.D)[1].Value, 4)
	require.NoError(t, write(lockcore.Lease{Resource: "r", LockID: "next", Fence: 13, FirstFence: 13}))
	require.Len(t, stored()[lockcore.FenceField].(bson.D)[1].Value, 1, "that of fence 14")
}

func TestUpdateFenced_LeaseWithoutOrder_IsRefused(t *testing.T) {
	t.Parallel()
	write, _ := account(t)
	requireInvalid(t, write(lockcore.Lease{Resource: "r", Fence: 7, Mode: lockcore.ModeShared}), "lease.Mode")
	requireInvalid(t, write(lockcore.Lease{}), "lease.Fence")
}

func TestUpdateFenced_UpdateOfAnotherKind_IsRefused(t *testing.T) {
	t.Parallel()
	coll := testenv.Mongo(t).Collection("accounts")
	fence := bson.D{{Key: "least", Value: 1}}
	for name, update := range map[string]any{
		"nil":                  nil,
		"a number":             7,
		"no operators":         bson.D{},
		"a replacement":        bson.M{"balance": 1},
		"a struct":             struct{ Balance int }{1},
		"a pipeline":           mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "balance", Value: 1}}}}},
		"a pipeline of any":    bson.A{bson.D{{Key: "$unset", Value: lockcore.FenceField}}},
		"the fence":            bson.M{"$set": bson.M{lockcore.FenceField: fence}},
		"a field of the fence": bson.D{{Key: "$max", Value: bson.D{{Key: lockcore.FenceField + ".least", Value: 1}}}},
		"the fence, raw":       mustMarshal(t, bson.D{{Key: "$unset", Value: bson.D{{Key: lockcore.FenceField, Value: ""}}}}),
		"the fence, marshaled": marshaler{bson.D{{Key: "$unset", Value: bson.D{{Key: lockcore.FenceField, Value: ""}}}}},
		"the fence, renamed":   bson.M{"$rename": bson.M{"balance": lockcore.FenceField}},
	} {
		err := lockcore.UpdateFenced(t.Context(), coll, lockcore.Lease{Resource: "r", Fence: 7}, bson.M{}, update)
		require.Equal(t, "update", errorAs[*lockcore.InvalidError](t, err).Field, name)
	}
}
