package testenv

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// answerWithin bounds one request to a server.
const answerWithin = 15 * time.Second

const mongoVariable = "LOCKSTEP_MONGODB_URI"

// MongoURI returns the URI of MongoDB. It fails the test if there is no server.
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
