// Package replicaset makes one-node replica sets.
//
// A MongoDB that is no replica set gives the driver no retried writes, so a single one for development is run as a set of itself.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Name is what sets made here are called.
const Name = "lockstep"

// electedWithin bounds the time from initiation to the first write. A single node elects itself within a few seconds.
const electedWithin = 30 * time.Second

// MongoDB's numbers for the errors that Initiate can answer.
const (
	commandNotFound    = 59
	notYetInitialized  = 94
	commandUnsupported = 115
	notImplemented     = 238
)

// Initiate makes the server behind admin, which must be a direct connection, a set whose one member is called host, and
// returns once that takes writes. The host must lead to the server from where its clients are and from the server
// itself.
//
// One of four things will happen: the set is initiated; it was, under this host, and nothing is done; it was under
// another host, and is told the new one; or the server knows no replica sets, for which known is false.
func Initiate(ctx context.Context, admin *mongo.Database, host string) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, electedWithin)
	defer cancel()
	known, err = configure(ctx, admin, host)
	if err != nil {
		return known, fmt.Errorf("initiate the replica set: %w", err)
	}
	if !known {
		return false, nil
	}
	return true, elected(ctx, admin)
}

func configure(ctx context.Context, admin *mongo.Database, host string) (known bool, err error) {
	var reply struct {
		Config struct {
			Version int64 `bson:"version"`
			Members []struct {
				Host string `bson:"host"`
			} `bson:"members"`
		} `bson:"config"`
	}
	err = admin.RunCommand(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}}).Decode(&reply)
	switch code := errorCode(err); {
	case slices.Contains([]int{commandNotFound, commandUnsupported, notImplemented}, code):
		return false, nil
	case code == notYetInitialized:
		return true, admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: singleNode(host, 1)}}).Err()
	case err != nil:
		return true, err
	}
	config := reply.Config
	if len(config.Members) == 1 && config.Members[0].Host == host {
		return true, nil
	}
	// Forced, since a member that does not find itself in its configuration is no primary.
	return true, admin.RunCommand(ctx, bson.D{
		{Key: "replSetReconfig", Value: singleNode(host, config.Version+1)},
		{Key: "force", Value: true},
	}).Err()
}

func singleNode(host string, version int64) bson.D {
	return bson.D{
		{Key: "_id", Value: Name},
		{Key: "version", Value: version},
		{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: host}}}},
	}
}

// elected waits until the server takes writes.
func elected(ctx context.Context, admin *mongo.Database) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var hello struct {
			Primary bool `bson:"isWritablePrimary"`
		}
		err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
		if err == nil && hello.Primary {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the replica set has no primary after %s", electedWithin), err)
		case <-tick.C:
		}
	}
}

func errorCode(err error) int {
	var command mongo.CommandError
	if errors.As(err, &command) {
		return int(command.Code)
	}
	return 0
}
