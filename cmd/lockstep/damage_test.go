package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// collection returns the collection of the locks.
func (l *locks) collection(t *testing.T) *mongo.Collection {
	t.Helper()
	return testenv.Mongo(t).Client().Database(l.database).Collection(defaultCollection)
}

// damage stores a document that cannot be decoded, in whose queue a workflow waits.
func (l *locks) damage(t *testing.T, name string) {
	t.Helper()
	namespace, err := testenv.Temporal(t).WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: client.DefaultNamespace})
	require.NoError(t, err)
	waits := bson.D{{Key: "lockId", Value: namespace.GetNamespaceInfo().GetId() + "/w"}, {Key: "since", Value: time.Now()}}
	_, err = l.collection(t).InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: name}, {Key: "attn", Value: bson.A{"X"}}, {Key: "entries", Value: "x"}, {Key: "waiters", Value: bson.A{waits}},
	})
	require.NoError(t, err)
}

// A command whose answer depends on a document that it cannot read names the document, and fails.
func TestCommands_DamagedDocument_IsNamed(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.damage(t, "bad/1")
	for _, args := range [][]string{{"orphans"}, {"deadlocks"}, {"deadlocks", "--json"}} {
		code, stdout, stderr := l.lockstep(t, args...)
		require.Equal(t, 1, code, "%s: %s", args, stdout+stderr)
		require.Contains(t, stderr, `1 document cannot be decoded, so the answer is not complete: "bad/1"`, "%s", args)
		require.NotRegexp(t, "no orphans|no deadlock", stdout)
	}
	code, stdout, stderr := l.lockstep(t, "show", "bad/1")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "cannot be decoded")
	require.Contains(t, stderr, `"bad/1" cannot be decoded: `)
	code, stdout, stderr = l.lockstep(t, "janitor", "--once")
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^ +1 document cannot be decoded, and was left out$`, stdout)
	_, stdout, _ = l.lockstep(t, "doctor")
	for _, about := range []string{"orphans  ", "deadlocks"} {
		require.Regexp(t, `(?m)^unknown  `+about+` +1 document cannot be decoded, so the answer is not complete: "bad/1"`, stdout)
	}
	for i := range 7 {
		l.damage(t, "worse/"+strings.Repeat("x", i))
	}
	require.Contains(t, l.fails(t, 1, "deadlocks"), `: 8 documents cannot be decoded, so the answer is not complete: "bad/1", "worse/", "worse/x", "worse/xx", "worse/xxx", and 3 more`)
}

func TestHold_DamagedDocument_TakesNothing(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.prints(t, "init")
	l.damage(t, "bad")
	stderr := l.fails(t, 1, "hold", "bad", "--reason", "paint")
	require.Contains(t, stderr, `"bad" cannot be decoded: `)
	require.NotContains(t, stderr, "it may still be in the queue")
	require.NotContains(t, stderr, "unhold")
}

// An index with the right name may be of no use.
func TestDoctor_WrongIndexes_AreNamed(t *testing.T) {
	t.Parallel()
	const idle, attn = "lockstep_idle", "lockstep_attn"
	key := func(name string) bson.D { return bson.D{{Key: name, Value: 1}} }
	partial := func(least any) *options.IndexOptionsBuilder {
		return options.Index().SetName(attn).SetPartialFilterExpression(bson.D{{Key: "attn", Value: bson.D{{Key: "$gte", Value: least}}}})
	}
	ttl := func(seconds int32) *options.IndexOptionsBuilder {
		return options.Index().SetName(idle).SetExpireAfterSeconds(seconds)
	}
	for name, test := range map[string]struct {
		index mongo.IndexModel
		want  string
	}{
		"key of the TTL index":     {mongo.IndexModel{Keys: key("idle"), Options: ttl(86400)}, idle + ` (there is one, but its key is {"idle": 1}, not {"idleAt": 1})`},
		"no TTL":                   {mongo.IndexModel{Keys: key("idleAt"), Options: options.Index().SetName(idle)}, idle + ` (there is one, but it has no expireAfterSeconds, which must be 86400)`},
		"another TTL":              {mongo.IndexModel{Keys: key("idleAt"), Options: ttl(60)}, idle + ` (there is one, but its expireAfterSeconds is 60, not 86400)`},
		"key of the partial index": {mongo.IndexModel{Keys: key("at"), Options: partial("")}, attn + ` (there is one, but its key is {"at": 1}, not {"attn": 1})`},
		"no partial filter":        {mongo.IndexModel{Keys: key("attn"), Options: options.Index().SetName(attn)}, attn + ` (there is one, but it has no partialFilterExpression, which must be {"attn": {"$gte": ""}})`},
		"another partial filter":   {mongo.IndexModel{Keys: key("attn"), Options: partial("b")}, attn + ` (there is one, but its partialFilterExpression is {"attn": {"$gte": "b"}}, not {"attn": {"$gte": ""}})`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLocks(t)
			l.prints(t, "init")
			indexes := l.collection(t).Indexes()
			wrong, _, _ := strings.Cut(test.want, " ")
			require.NoError(t, indexes.DropOne(t.Context(), wrong))
			_, err := indexes.CreateOne(t.Context(), test.index)
			require.NoError(t, err)
			_, out, _ := l.lockstep(t, "doctor")
			require.Contains(t, out, "indexes      not there: "+test.want+"\n")
			require.Contains(t, out, `drop it first: db.getCollection("locks").dropIndex("`+wrong+`")`)
			require.NoError(t, indexes.DropOne(t.Context(), wrong))
			l.prints(t, "init")
			_, out, _ = l.lockstep(t, "doctor")
			require.Contains(t, out, "both are there")
		})
	}
}

// notSent is a store that cannot send a command.
type notSent struct{ store.Store }

func (notSent) Load(context.Context, ...string) (store.Loaded, error) {
	return store.Loaded{}, fmt.Errorf("%w: no server", store.ErrNotSent)
}

// The document may be damaged, or the server unreachable, after hold has listed the holders.
func TestHold_TookNothing_PointsToNoUnhold(t *testing.T) {
	t.Parallel()
	memory := lockcoretest.NewStore(time.Now)
	raw, err := bson.Marshal(bson.D{{Key: "_id", Value: "r"}})
	require.NoError(t, err)
	memory.Damage("r", raw)
	for want, s := range map[error]store.Store{lockcore.ErrDamaged: memory, store.ErrNotSent: notSent{lockcoretest.NewStore(time.Now)}} {
		l, err := lockcore.NewWithStore(s, lockcore.Config{})
		require.NoError(t, err)
		cfg := holdConfig{reason: "paint"}
		err = cfg.queue(t.Context(), &site{Site: inspect.Site{Locker: l.Steps()}}, cfg.request("r"))
		require.ErrorIs(t, err, want)
		require.NotContains(t, err.Error(), "unhold")
		require.NoError(t, l.Close(t.Context()))
	}
}
