package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// mostCollections is how many other collections are looked at.
const mostCollections = 100

// collections looks for workers of the same namespace that keep their locks elsewhere in this
// database: each collection with such workers has a janitor's lock.
func (p *Patient) collections(ctx context.Context) Finding {
	const about = "one place"
	db := p.Collection.Database()
	names, err := db.ListCollectionNames(ctx, bson.D{{Key: "type", Value: "collection"}})
	if err != nil {
		return unanswered(about, err)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(name string) bool { return name == p.Collection.Name() })
	var others []string
	for _, name := range names[:min(len(names), mostCollections)] {
		has, err := p.hasOffice(ctx, db.Collection(name))
		if err != nil {
			return unanswered(about, err)
		}
		if has {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		return Finding{
			about, Broken, fmt.Sprintf("workers of this namespace also keep locks in %s: they do not keep each other out", strings.Join(others, ", ")),
			"give all workers the same collection, and let the workflows of the others end first",
		}
	}
	if len(names) > mostCollections {
		return Finding{about, Unknown, fmt.Sprintf("%s has more than %d other collections", db.Name(), mostCollections), "give the locks a database of their own"}
	}
	return Finding{about, OK, fmt.Sprintf("no other collection of database %s has locks of this namespace's workers", db.Name()), ""}
}

// hasOffice reports whether a janitor of the namespace works on a collection. What is no collection
// of locks is only read.
func (p *Patient) hasOffice(ctx context.Context, coll *mongo.Collection) (bool, error) {
	office := janitor.Office(p.Temporal.NamespaceID)
	err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: office}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	locker, err := party.New(coll, lockcore.Config{})
	if err != nil {
		return false, err
	}
	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }() // it has nothing under way
	for s, err := range locker.Status(ctx, lockcore.Filter{Resource: office}) {
		var layout *lockcore.LayoutError
		switch {
		case errors.As(err, &layout):
			return false, nil
		case err != nil:
			return false, err
		case s.State == lockcore.StateHolding && s.ExpiresIn > 0:
			return true, nil
		}
	}
	return false, nil
}

// workers looks for workers without the plugin on task queues that have workers with it.
func (p *Patient) workers(ctx context.Context) Finding {
	const about = "workers"
	with, without := map[string]int{}, map[string][]string{}
	for page := []byte(nil); ; {
		answer, err := p.Temporal.Service.ListWorkers(ctx, &workflowservice.ListWorkersRequest{Namespace: p.Temporal.Namespace, PageSize: 1000, NextPageToken: page})
		var unimplemented *serviceerror.Unimplemented
		switch {
		case errors.As(err, &unimplemented):
			return Finding{about, OK, "this server does not list its workers: see " + aboutPollers, ""}
		case err != nil:
			return unanswered(about, err)
		}
		for _, w := range answer.GetWorkers() {
			if state := w.GetStatus(); state == enumspb.WORKER_STATUS_SHUTDOWN || state == enumspb.WORKER_STATUS_SHUTTING_DOWN {
				continue // it is listed for a while
			}
			has := false
			for _, plugin := range w.GetPlugins() {
				has = has || plugin.GetName() == wire.PluginName
			}
			if has {
				with[w.GetTaskQueue()]++
			} else {
				without[w.GetTaskQueue()] = append(without[w.GetTaskQueue()], w.GetWorkerIdentity())
			}
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			break
		}
	}
	var mixed []string
	for queue, identities := range without {
		if with[queue] > 0 {
			mixed = append(mixed, fmt.Sprintf("%s (%s)", queue, strings.Join(identities, ", ")))
		}
	}
	slices.Sort(mixed)
	switch {
	case len(mixed) > 0:
		return Finding{about, Broken, "workers without Lockstep on task queues that have others with it: " + strings.Join(mixed, "; "), "they run guarded steps without locks: install the plugin there, or stop them"}
	case len(with) == 0:
		return Finding{about, Warning, "Temporal knows of no worker with the plugin", "workers report themselves by heartbeats once a minute; those of older SDKs do not"}
	}
	return Finding{about, OK, fmt.Sprintf("on %d task queues all have Lockstep", len(with)), ""}
}
