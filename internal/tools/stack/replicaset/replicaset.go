// Package replicaset makes a MongoDB a replica set of one node.
//
// The driver retries writes only on replica sets and sharded clusters, so a single server for development must be a replica set.
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

// Name is the name of the replica sets.
const Name = "lockstep"

// electedWithin bounds the time until the server accepts writes. A single node elects itself within a few seconds.
const electedWithin = 30 * time.Second

// Error codes of MongoDB that Initiate handles.
const (
	commandNotFound    = 59
	notYetInitialized  = 94
	commandUnsupported = 115
	notImplemented     = 238
)

// Initiate makes a server a replica set and returns when it accepts writes. admin must be a direct connection. host is the address
// of the one member: clients and the server itself must reach the server under it. There are four outcomes:
//
//  1. The replica set is initiated.
//  2. It was initiated with this host. Nothing changes.
//  3. It was initiated with another host, which is replaced.
//  4. The server does not support replica sets. supported is false.
func Initiate(ctx context.Context, admin *mongo.Database, host string) (supported bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, electedWithin)
	defer cancel()
	supported, err = configure(ctx, admin, host)
	if err != nil {
		return supported, fmt.Errorf("initiate the replica set: %w", err)
	}
	if !supported {
		return false, nil
	}
	return true, waitForPrimary(ctx, admin)
}

func configure(ctx context.Context, admin *mongo.Database, host string) (supported bool, err error) {
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
	// force is necessary, because a member that is not in its own configuration is not a primary.
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

// waitForPrimary returns when the server accepts writes.
func waitForPrimary(ctx context.Context, admin *mongo.Database) error {
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
