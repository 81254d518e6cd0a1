package replicaset

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/drivertest"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"
)

const host = "127.0.0.1:27017"

func ok(fields ...bson.E) bson.D { return append(bson.D{{Key: "ok", Value: 1}}, fields...) }

func failed(code int) bson.D {
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "no"}}
}

func config(host string) bson.D {
	return ok(bson.E{Key: "config", Value: bson.D{
		{Key: "version", Value: 4},
		{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: host}}}},
	}})
}

func hello(primary bool) bson.D { return ok(bson.E{Key: "isWritablePrimary", Value: primary}) }

func TestInitiate_Server_BecomesReplicaSet(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		replies   []bson.D
		supported bool
		err       string
		sent      []string
		config    string // the configuration that was sent
	}{
		"a new server": {
			replies:   []bson.D{failed(notYetInitialized), ok(), hello(false), hello(true)},
			supported: true,
			sent:      []string{"replSetGetConfig", "replSetInitiate", "hello", "hello"},
			config:    `{"_id": "lockstep","version": {"$numberLong":"1"},"members": [{"_id": {"$numberInt":"0"},"host": "127.0.0.1:27017"}]}`,
		},
		"an initiated one": {
			replies:   []bson.D{config(host), hello(true)},
			supported: true,
			sent:      []string{"replSetGetConfig", "hello"},
		},
		"one with another address": {
			replies:   []bson.D{config("127.0.0.1:1"), ok(), hello(true)},
			supported: true,
			sent:      []string{"replSetGetConfig", "replSetReconfig", "hello"},
			config:    `{"_id": "lockstep","version": {"$numberLong":"5"},"members": [{"_id": {"$numberInt":"0"},"host": "127.0.0.1:27017"}]}`,
		},
		"one without replica sets": {
			replies: []bson.D{failed(commandNotFound)},
			sent:    []string{"replSetGetConfig"},
		},
		"one that requires a password": {
			replies:   []bson.D{failed(13)},
			err:       "initiate the replica set",
			supported: true,
			sent:      []string{"replSetGetConfig"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent []string
			var set bson.Raw
			admin := fake(t, tt.replies, func(command bson.Raw) {
				first := command.Index(0)
				sent = append(sent, first.Key())
				if doc, ok := first.Value().DocumentOK(); ok {
					set = append(bson.Raw(nil), doc...)
				}
			})
			supported, err := Initiate(t.Context(), admin, host)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tt.supported, supported)
			require.Equal(t, tt.sent, sent)
			if tt.config != "" {
				require.JSONEq(t, tt.config, set.String())
			}
		})
	}
}

// fake returns a server that gives the replies in order.
func fake(t *testing.T, replies []bson.D, seen func(bson.Raw)) *mongo.Database {
	t.Helper()
	opts := options.Client().SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) { seen(e.Command) },
	})
	require.NoError(t, xoptions.SetInternalClientOptions(opts, "deployment", drivertest.NewMockDeployment(replies...)))
	c, err := mongo.Connect(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.Background())) })
	return c.Database("admin")
}
