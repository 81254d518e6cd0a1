package testenv

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// answerWithin bounds one request to a server.
const answerWithin = 15 * time.Second

const mongoVariable = "LOCKSTEP_MONGODB_URI"

// MongoURI returns the URI of MongoDB. It fails the test without a server.
func MongoURI(t testing.TB) string {
	t.Helper()
	return mongoServer.address(t)
}

// Mongo returns a new database. After the test it is dropped and its client disconnected.
func Mongo(t testing.TB) *mongo.Database {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(MongoURI(t)))
	if err != nil {
		t.Fatalf("connect to MongoDB: %v", err)
	}
	db := c.Database(databaseName(t.Name()))
	t.Cleanup(func() {
		// The test's context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
		defer cancel()
		if err := db.Drop(ctx); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
		if err := c.Disconnect(ctx); err != nil {
			t.Errorf("disconnect from MongoDB: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	if err := db.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err(); err != nil {
		t.Fatalf("MongoDB does not answer: %v\n%s", err, mongoServer.remedy())
	}
	return db
}

// MongoPrimary returns the address of MongoDB's primary, for a proxy.
func MongoPrimary(tb testing.TB) string {
	tb.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(MongoURI(tb)))
	require.NoError(tb, err)
	defer func() { _ = c.Disconnect(context.Background()) }() // it has answered
	ctx, cancel := context.WithTimeout(tb.Context(), answerWithin)
	defer cancel()
	var hello struct{ Primary string }
	require.NoError(tb, c.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
	if hello.Primary == "" { // it is not a replica set
		_, hosts, _ := splitURI(MongoURI(tb))
		return hosts
	}
	return hello.Primary
}

// MongoByProxy returns the URI of MongoDB through a proxy, with more options. The members' own addresses would bypass the proxy.
func MongoByProxy(tb testing.TB, proxy string, more map[string]string) string {
	tb.Helper()
	before, _, after := splitURI(MongoURI(tb))
	u, err := url.Parse(before + proxy + after)
	require.NoError(tb, err)
	query := u.Query()
	query.Del("replicaSet")
	query.Set("directConnection", "true")
	for name, value := range more {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// splitURI returns what is before the addresses in a URI of MongoDB, the addresses, and what is after them. Package url refuses
// several addresses.
func splitURI(uri string) (before, hosts, after string) {
	start := strings.Index(uri, "://") + len("://")
	end := len(uri)
	if i := strings.IndexAny(uri[start:], "/?"); i >= 0 {
		end = start + i
	}
	start += strings.LastIndex(uri[start:end], "@") + 1
	return uri[:start], uri[start:end], uri[end:]
}

// databaseName returns a unique name that contains the test's name, to identify databases of tests that were killed. MongoDB allows
// 63 bytes and ignores case.
func databaseName(test string) string {
	return "test_" + slug(test, 30) + "_" + suffix()
}

// slug replaces the characters of a test's name that a server may reject.
func slug(name string, length int) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		default:
			return '_'
		}
	}, strings.ToLower(name))
	return s[:min(len(s), length)]
}

func suffix() string { return strings.ToLower(rand.Text()[:12]) }
