package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// MongoDB's numbers for errors that this file can answer.
const (
	commandNotFound    = 59
	commandUnsupported = 115
	notYetInitialized  = 94
	notImplemented     = 238
)

const electedWithin = 30 * time.Second

// initiate makes the server on the port a one-node replica set that calls itself by the address that clients use, and
// returns once it takes writes. A server that knows no replica sets is taken as it is.
func initiate(ctx context.Context, port int) (Endpoint, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, electedWithin, errors.New("the replica set elects no primary"))
	defer cancel()
	known := true
	err := withMongo(ctx, directURI(port), func(admin *mongo.Database) (err error) {
		known, err = configure(ctx, admin, hostPort(port))
		return err
	})
	if err != nil {
		return Endpoint{}, fmt.Errorf("initiate the replica set: %w", err)
	}
	if !known {
		return Endpoint{Address: "mongodb://" + hostPort(port) + "/"}, nil
	}
	uri := "mongodb://" + hostPort(port) + "/?replicaSet=" + replicaSet
	// The driver looks for a primary until ctx ends.
	if err := mongoHealthy(ctx, uri); err != nil {
		return Endpoint{}, errors.Join(context.Cause(ctx), err)
	}
	return Endpoint{Address: uri}, nil
}

// configure has one of four outcomes: the set is initiated; it was, under this address; it was under another, since the
// port has changed, and is told the new one; the server knows no replica sets.
func configure(ctx context.Context, admin *mongo.Database, host string) (known bool, err error) {
	var reply struct {
		Config bson.D `bson:"config"`
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
	var config struct {
		Version int64 `bson:"version"`
		Members []struct {
			Host string `bson:"host"`
		} `bson:"members"`
	}
	raw, err := bson.Marshal(reply.Config)
	if err != nil {
		return true, err
	}
	if err := bson.Unmarshal(raw, &config); err != nil {
		return true, err
	}
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
		{Key: "_id", Value: replicaSet},
		{Key: "version", Value: version},
		{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: host}}}},
	}
}

func errorCode(err error) int {
	var command mongo.CommandError
	if errors.As(err, &command) {
		return int(command.Code)
	}
	return 0
}
