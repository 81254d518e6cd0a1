package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// hello is the server's answer to hello.
type hello struct {
	SetName  string   `bson:"setName"`
	Msg      string   `bson:"msg"`
	Hosts    []string `bson:"hosts"`
	Passives []string `bson:"passives"`
	Primary  string   `bson:"primary"`
}

// Topologies.
const (
	replicaSet = "replica set"
	sharded    = "sharded cluster"
	standalone = "standalone server"
)

// describe asks the server what it is.
func describe(ctx context.Context, coll *mongo.Collection) (Server, error) {
	ask := func(name string, answer any) error {
		return coll.Database().RunCommand(ctx, bson.D{{Key: name, Value: 1}}).Decode(answer)
	}
	var h hello
	var build struct {
		Version  string
		FerretDB struct{ Version string }
	}
	if err := errors.Join(ask("hello", &h), ask("buildInfo", &build)); err != nil {
		return Server{}, fmt.Errorf("ask the server what it is: %w", err)
	}
	s := Server{
		Product: "MongoDB", Version: build.Version, Topology: standalone, ReplicaSet: h.SetName, Members: len(h.Hosts) + len(h.Passives),
		Collection: coll.Database().Name() + "." + coll.Name(),
	}
	if build.FerretDB.Version != "" {
		s.Product, s.Version = "FerretDB", build.FerretDB.Version+" (emulates MongoDB "+build.Version+")"
	}
	switch {
	case h.Msg == "isdbgrid":
		s.Topology = sharded
	case h.SetName != "":
		s.Topology = replicaSet
	}
	var status struct {
		StorageEngine struct{ Name string }
	}
	if err := ask("serverStatus", &status); err == nil { // it needs a right that a user of locks may lack
		s.Storage = status.StorageEngine.Name
	}
	return s, nil
}

// unauthorized is the server's error code for a missing right.
const unauthorized = 13

// prepare makes the collection. It first tries to remove it, so that nothing is made that could not be removed.
func (r *run) prepare(ctx context.Context) error {
	err := r.coll.Drop(ctx)
	if err == nil {
		err = r.store.Prepare(ctx)
	}
	return explainRefusal(r.coll.Database().Name(), err)
}

// explainRefusal explains an error about a missing right.
func explainRefusal(database string, err error) error {
	var refused mongo.ServerError
	if errors.As(err, &refused) && refused.HasErrorCode(unauthorized) {
		return fmt.Errorf("the user may not do in database %q what verify needs there: it makes, uses and removes a collection of its own, "+
			"which the role readWrite allows: %w", database, err)
	}
	return err
}

// removing bounds the removal of the collection.
const removing = 30 * time.Second

// remove removes the collection, even if ctx has ended. A command that was sent before may still be at work and make the
// collection again, so it looks a moment later.
func (r *run) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience)
	defer cancel()
	for ctx.Err() == nil {
		if err := r.coll.Drop(ctx); err != nil {
			harness.Pause(ctx, time.Second)
			continue
		}
		harness.Pause(ctx, 200*time.Millisecond)
		if names, err := r.coll.Database().ListCollectionNames(ctx, bson.D{{Key: "name", Value: r.coll.Name()}}); err == nil && len(names) == 0 {
			return
		}
	}
	r.report.Left = r.report.Server.Collection
}
