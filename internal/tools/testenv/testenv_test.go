package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

func TestMain(m *testing.M) { Main(m) }

func TestMongo_Database_IsNewAndDropped(t *testing.T) {
	t.Parallel()
	var names []string
	for range 2 {
		t.Run("one", func(t *testing.T) {
			db := Mongo(t)
			n, err := db.Collection("things").CountDocuments(t.Context(), bson.D{})
			require.NoError(t, err)
			require.Zero(t, n)
			_, err = db.Collection("things").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
			require.NoError(t, err)
			names = append(names, db.Name())
		})
	}
	require.Len(t, names, 2)
	require.NotEqual(t, names[0], names[1])
	left, err := Mongo(t).Client().ListDatabaseNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NotContains(t, left, names[0])
	require.NotContains(t, left, names[1])
}

func TestMongoByProxy_Servers_HasOnlyProxy(t *testing.T) {
	for uri, want := range map[string]string{
		"mongodb://a:1/":                       "mongodb://proxy:9/?directConnection=true&tls=true",
		"mongodb://a:1,b:2,c:3/?replicaSet=rs": "mongodb://proxy:9/?directConnection=true&tls=true",
		"mongodb://u:p%40@a:1,b/db?w=1":        "mongodb://u:p%40@proxy:9/db?directConnection=true&tls=true&w=1",
		"mongodb://u:p@a":                      "mongodb://u:p@proxy:9?directConnection=true&tls=true",
	} {
		t.Setenv(mongoVariable, uri)
		require.Equal(t, want, MongoByProxy(t, "proxy:9", map[string]string{"tls": "true"}), uri)
	}
}

func TestMongoPrimary_Accepts_Connections(t *testing.T) {
	t.Parallel()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", MongoPrimary(t))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestTemporal_Namespace_IsDescribed(t *testing.T) {
	t.Parallel()
	_, err := Temporal(t).WorkflowService().DescribeNamespace(t.Context(),
		&workflowservice.DescribeNamespaceRequest{Namespace: client.DefaultNamespace})
	require.NoError(t, err)
}

func TestNames_LongTestName_AreUniqueAndValid(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, TaskQueue(t), TaskQueue(t))
	name := databaseName("TestÜber/case_with $dots.and a very long name that goes on and on")
	require.LessOrEqual(t, len(name), 63)
	require.Regexp(t, `^test_[a-z0-9_]+$`, name)
}

func TestAddress_VariableSet_StartsNoContainer(t *testing.T) {
	t.Parallel()
	s := &server{
		variable: "WHERE",
		getenv:   func(name string) string { return map[string]string{"WHERE": "there:1"}[name] },
		start:    func(context.Context) (string, error) { return "", errors.New("must not be called") },
	}
	require.Equal(t, "there:1", s.address(t))
}

func TestAddress_SecondCall_StartsNoContainer(t *testing.T) {
	t.Parallel()
	started := 0
	s := &server{
		getenv: func(string) string { return "" },
		start: func(context.Context) (string, error) {
			started++
			return "container:1", nil
		},
	}
	require.Equal(t, "container:1", s.address(t))
	require.Equal(t, "container:1", s.address(t))
	require.Equal(t, 1, started)
}

func TestAddress_NoServer_FailsWithRemedy(t *testing.T) {
	t.Parallel()
	s := &server{
		what:     "MongoDB",
		variable: "LOCKSTEP_MONGODB_URI",
		getenv:   func(string) string { return "" },
		start:    func(context.Context) (string, error) { return "", errors.New("no engine") },
	}
	for range 2 { // the second test must fail too
		fake := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.address(fake)
		}()
		<-done
		for _, want := range []string{"needs a MongoDB", "LOCKSTEP_MONGODB_URI is not set", "no engine", "make stack-up", "Docker"} {
			require.Contains(t, fake.fatal, want)
		}
	}
}

// recorder records the message of Fatalf.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
