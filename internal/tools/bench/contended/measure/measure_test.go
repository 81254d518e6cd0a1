package measure

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/drivertest"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"
)

func TestMonitor_Answer_ReachesCallerLater(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	ok, failed := bson.D{{Key: "ok", Value: 1}}, bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 1}}
	for _, tt := range []struct {
		name    string
		delays  Delays
		command string
		reply   bson.D
		want    time.Duration
	}{
		{"a write", Delays{Writes: 12 * ms}, "update", ok, 12 * ms},
		{"a write that fails", Delays{Writes: 12 * ms}, "findAndModify", failed, 12 * ms},
		{"a read", Delays{Writes: 12 * ms, Reads: 3 * ms}, "find", ok, 3 * ms},
		{"another command", Delays{Writes: 12 * ms, Reads: 3 * ms}, "ping", ok, 0},
		{"a write to a slow database", Delays{All: 50 * ms, Writes: 12 * ms}, "insert", ok, 62 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				opts := options.Client().SetMonitor(tt.delays.Monitor())
				require.NoError(t, xoptions.SetInternalClientOptions(opts, "deployment", drivertest.NewMockDeployment(tt.reply)))
				client, err := mongo.Connect(opts)
				require.NoError(t, err)
				start := time.Now()
				err = client.Database("db").RunCommand(t.Context(), bson.D{{Key: tt.command, Value: "locks"}}).Err()
				require.Equal(t, tt.want, time.Since(start))
				require.Equal(t, tt.reply[0].Value == 1, err == nil)
				require.NoError(t, client.Disconnect(t.Context()))
			})
		})
	}
}

func TestHold_ContextEnds_Returns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		Delays{All: time.Hour}.Hold(ctx, "ping")
		require.Equal(t, time.Second, time.Since(start))
	})
}
