package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// The doctor says of the indexes that they are missing, that so few documents need none, and that they are used.
func TestTheDoctorLooksAtTheIndexes(t *testing.T) {
	t.Parallel()
	db := testenv.Mongo(t)
	said := func(want string) {
		t.Helper()
		_, out, stderr := lockstep(t, servers(t), "doctor", "--database", db.Name())
		require.Contains(t, out, want, stderr)
	}
	said("not there: lockstep_idle, lockstep_attn\n")
	said("→ lockstep init --database " + db.Name() + " makes them")
	code, _, stderr := lockstep(t, servers(t), "init", "--database", db.Name())
	require.Zero(t, code, stderr)
	said("both are there")
	idle := make([]any, 20_000)
	for i := range idle {
		idle[i] = bson.D{
			{Key: "_id", Value: fmt.Sprint("idle/", i)}, {Key: "held", Value: bson.A{}}, {Key: "waiters", Value: bson.A{}},
			{Key: "attn", Value: bson.A{}}, {Key: "idleAt", Value: time.Now()},
		}
	}
	_, err := db.Collection(defaultCollection).InsertMany(t.Context(), idle)
	require.NoError(t, err)
	said("both are there, and used to find what is contended\n")
}

// The tests' server is FerretDB, which has no replica sets, or a replica set of one member. Neither makes the exit status 1.
func TestDoctor_ServerOfTheTests_IsNotBroken(t *testing.T) {
	t.Parallel()
	_, out, stderr := lockstep(t, servers(t), "doctor", "--database", testenv.Mongo(t).Name())
	require.Regexp(t, `(?m)^(warning|ok) +replica set `, out, stderr)
}
