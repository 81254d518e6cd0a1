package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/cli/verify"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func collections(t *testing.T, database string) []string {
	t.Helper()
	names, err := testenv.Mongo(t).Client().Database(database).ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	return names
}

// The control is the shortest run. It stops at the first violation. (.ci/run verify makes a whole run.)
func TestVerify_Control_IsViolated(t *testing.T) {
	t.Parallel()
	database := testenv.Mongo(t).Name()
	code, stdout, stderr := lockstep(t, servers(t), "verify", "--database", database, "--control", "lost-compare", "--json")
	require.Equal(t, 1, code, stderr)
	require.Equal(t, "lockstep: a guarantee was violated\n", stderr)
	var r verify.Report
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&r))
	require.Equal(t, verify.Violated, r.Result)
	require.Equal(t, "lost-compare", r.Control)
	require.NotZero(t, r.Seed)
	require.Positive(t, r.Operations)
	require.NotEmpty(t, r.Checks)
	last := r.Checks[len(r.Checks)-1]
	require.Equal(t, verify.Violated, last.Result)
	require.NotEmpty(t, last.Seen)
	require.True(t, strings.HasPrefix(r.Server.Collection, database+".lockstep_verify_"), r.Server.Collection)
	require.Empty(t, collections(t, database), "it removes its collection")
}

func TestVerify_StepDownWithoutReplicaSet_IsRefused(t *testing.T) {
	t.Parallel()
	database := testenv.Mongo(t).Name()
	// The connection is direct, so that the primary of a set of several members does not step down.
	uri := testenv.MongoByProxy(t, testenv.MongoPrimary(t), nil)
	code, stdout, stderr := lockstep(t, servers(t), "verify", "--mongodb-uri", uri, "--database", database, "--step-down")
	require.Equal(t, 2, code, stdout)
	require.Contains(t, stderr, "--step-down needs a replica set of several members")
	require.Empty(t, stdout)
	require.Empty(t, collections(t, database))
}

func TestVerify_Interrupted_RemovesCollection(t *testing.T) {
	t.Parallel()
	db := testenv.Mongo(t)
	_, err := db.Collection("orders").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "order/1"}})
	require.NoError(t, err)
	p := start(t, servers(t), "verify", "--database", db.Name(), "--duration", "1h")
	require.Eventually(t, func() bool { return len(collections(t, db.Name())) == 2 }, within, 20*time.Millisecond, "it makes a collection")
	p.interrupt(t)
	require.Equal(t, 130, p.wait(t), &p.stderr)
	require.Equal(t, "lockstep: it stops, and removes its collection\nlockstep: interrupted\n", p.stderr.String())
	require.Empty(t, p.stdout.String())
	require.Equal(t, []string{"orders"}, collections(t, db.Name()), "only that of others is left")
}

// The last line of the text is the one for a ticket.
func TestVerify_Documented_FieldsAndLine(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/verify.md")
	require.NoError(t, err)
	line := (&verify.Report{
		Version: "(devel)", Result: verify.Held, Operations: 1952, Seed: 968116, Started: time.Date(2026, 11, 26, 17, 0, 52, 0, time.UTC),
		Server: verify.Server{Product: "FerretDB", Version: "v2.7.0 (emulates MongoDB 7.0.77)", Topology: "standalone server"},
		Checks: make([]verify.Check, 8),
	}).Line()
	require.Contains(t, string(page), "\n"+line+"\n")
	for _, control := range verify.Controls() {
		require.Contains(t, string(page), "`"+control+"`")
	}
	for _, name := range verify.Names() {
		require.Contains(t, string(page), "| `"+name+"` |")
	}
}
