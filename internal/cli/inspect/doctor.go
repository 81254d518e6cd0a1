package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// States of a finding. Unknown is also the status of a workflow run that Temporal does not know.
const (
	OK      = "ok"
	Warning = "warning"
	Broken  = "broken"
	Unknown = "unknown"
)

// Finding is the result of one check.
type Finding struct {
	About string `json:"about"`
	// State is one of the constants. Unknown means that the check got no answer.
	State string `json:"state"`
	What  string `json:"what"`
	// Advice is set unless all is well.
	Advice string `json:"advice,omitempty"`
}

func ok(format string, args ...any) (Finding, error) {
	return Finding{State: OK, What: fmt.Sprintf(format, args...)}, nil
}

func finding(state, what, advice string) (Finding, error) {
	return Finding{State: state, What: what, Advice: advice}, nil
}

// Doctor checks a site.
type Doctor struct {
	Site
	// NoDatabase and NoTemporal explain why the site has no connection to its database, or to Temporal.
	NoDatabase, NoTemporal error
	// ReadOnly leaves out the check that writes.
	ReadOnly bool
	Logger   sdklog.Logger
}

// checkTimeout is generous because Temporal is asked about each run that may have left an orphan.
const checkTimeout = time.Minute

// Names of the checks on which others depend.
const (
	aboutDatabase   = "database"
	aboutCollection = "collection"
	aboutTemporal   = "Temporal"
)

// Examine checks the database first, then Temporal, then what workflows have left. A check that depends on one that is not
// well is not made: it is Unknown, and names the other. Examine writes only to a collection of locks, where it locks the
// resource "lockstep/doctor" for a moment.
func (d *Doctor) Examine(ctx context.Context) (findings []Finding) {
	well := map[string]bool{}
	for _, check := range []struct {
		about string
		needs []string
		run   func(context.Context) (Finding, error)
	}{
		{aboutDatabase, nil, d.server},
		{"replica set", []string{aboutDatabase}, d.replicaSet},
		{"clocks", []string{aboutDatabase}, d.clock},
		{"connections", []string{aboutDatabase}, d.connections},
		{aboutCollection, []string{aboutDatabase}, d.collection},
		{"indexes", []string{aboutCollection}, d.indexes},
		{"writing", []string{aboutCollection}, d.writing},
		{aboutTemporal, nil, d.temporal},
		{"Temporal API", []string{aboutTemporal}, d.questions},
		{"janitor", []string{aboutCollection, aboutTemporal}, d.janitor},
		{"collections", []string{aboutDatabase, aboutTemporal}, d.otherCollections},
		{"workers", []string{aboutTemporal}, d.workers},
		{"orphans", []string{aboutCollection, aboutTemporal}, d.orphans},
		{"commits", []string{aboutCollection}, d.commits},
		{"documents", []string{aboutCollection}, d.documents},
		{"deadlocks", []string{aboutCollection}, d.deadlocks},
		{"semaphores", []string{aboutCollection}, d.semaphores},
		{"policies", []string{aboutCollection}, d.policies},
		{"pools", []string{aboutCollection}, d.pools},
		{"attempts", []string{aboutCollection, aboutTemporal}, d.attempts},
	} {
		var found Finding
		missing := slices.DeleteFunc(check.needs, func(about string) bool { return well[about] })
		if len(missing) > 0 {
			found = Finding{State: Unknown, What: "not checked: see " + strings.Join(missing, " and ")}
		} else {
			limited, cancel := context.WithTimeout(ctx, checkTimeout)
			var err error
			if found, err = check.run(limited); err != nil {
				found = Finding{State: Unknown, What: err.Error(), Advice: "the question was not answered: mend that first"}
			}
			cancel()
		}
		well[check.about] = found.State == OK
		found.About = check.about
		findings = append(findings, found)
	}
	return findings
}

// runCommand runs a database command that has no arguments.
func (d *Doctor) runCommand(ctx context.Context, name string, answer any) error {
	return d.Collection.Database().RunCommand(ctx, bson.D{{Key: name, Value: 1}}).Decode(answer)
}

// build is the server's answer to buildInfo.
type build struct {
	Version string
	// FerretDB is present if the server is FerretDB. Version is then that of the MongoDB that it emulates.
	FerretDB bson.Raw `bson:"ferretdb"`
}

func (d *Doctor) server(ctx context.Context) (Finding, error) {
	if d.NoDatabase != nil {
		return Finding{}, d.NoDatabase
	}
	var b build
	if err := d.runCommand(ctx, "buildInfo", &b); err != nil {
		return Finding{}, err
	}
	if len(b.FerretDB) > 0 {
		return ok("FerretDB, which emulates MongoDB %s", b.Version)
	}
	return ok("MongoDB %s", b.Version)
}

// hello is the server's answer to hello.
type hello struct {
	SetName   string    `bson:"setName"`
	Msg       string    `bson:"msg"`
	Hosts     []string  `bson:"hosts"`
	LocalTime time.Time `bson:"localTime"`
}

func (d *Doctor) replicaSet(ctx context.Context) (Finding, error) {
	var h hello
	var b build
	if err := errors.Join(d.runCommand(ctx, "hello", &h), d.runCommand(ctx, "buildInfo", &b)); err != nil {
		return Finding{}, err
	}
	return replicaSetFinding(h, b)
}

func replicaSetFinding(h hello, b build) (Finding, error) {
	switch {
	case h.Msg == "isdbgrid":
		return ok("a sharded cluster")
	case h.SetName == "" && len(b.FerretDB) > 0:
		return finding(Warning, "FerretDB has no replica sets", "locks are as durable as its PostgreSQL: keep synchronous_commit on, and see what a failover there loses")
	case h.SetName == "":
		return finding(Broken, "a standalone server, in no replica set",
			"after a crash it can lose writes that it acknowledged with majority, and with them locks (SERVER-139311): run a replica set, best of three members")
	case len(h.Hosts) < 3:
		return finding(Warning, fmt.Sprintf("replica set %q has %s", h.SetName, table.Count(len(h.Hosts), "member")), "with fewer than three no majority is left when one fails")
	}
	return ok("replica set %q of %d members", h.SetName, len(h.Hosts))
}

// maxOffset is the difference of the clocks from which on it is reported.
const maxOffset = 2 * time.Second

func (d *Doctor) clock(ctx context.Context) (Finding, error) {
	var h hello
	sent := time.Now()
	if err := d.runCommand(ctx, "hello", &h); err != nil {
		return Finding{}, err
	}
	if h.LocalTime.IsZero() {
		return finding(Unknown, "the server does not report its time", "")
	}
	offset := h.LocalTime.Sub(sent.Add(time.Since(sent) / 2)).Round(time.Millisecond)
	what := fmt.Sprintf("the server's clock is %s from this machine's", offset)
	if offset.Abs() > maxOffset {
		return finding(Warning, what, "locks go by the server's clock, and nothing goes wrong; but times that people compare differ: run NTP on both")
	}
	return ok("%s", what)
}

const (
	// driverPool is the driver's default of maxPoolSize.
	driverPool = 100
	// smallPool is the number of connections below which a pool is reported. Requests that wait in a worker use up to
	// 25 at once (docs/performance.md), in addition to renewals, reads of queues and releases.
	smallPool = 30
)

// connections checks the URI's maxPoolSize. The doctor cannot know the options that workers set in their code.
func (d *Doctor) connections(context.Context) (Finding, error) {
	size := uint64(driverPool)
	if d.MaxPoolSize != nil {
		size = *d.MaxPoolSize
	}
	switch {
	case size == 0:
		return ok("the URI does not limit the connections of a client")
	case size < smallPool:
		return finding(Warning, fmt.Sprintf("the URI limits each client to %s", table.Count(int64(size), "connection")), fmt.Sprintf(
			"if all are in use, renewals wait and locks are lost while the database is healthy: give locks a client of their own, with a maxPoolSize of %d or more", smallPool))
	}
	return ok("the URI allows each client %s", table.Count(int64(size), "connection"))
}

func (d *Doctor) collection(ctx context.Context) (Finding, error) {
	err := d.CheckCollection(ctx)
	if errors.Is(err, ErrNoCollection) {
		return finding(Broken, err.Error(), "name the collection of your workers with --database and --collection; or "+d.command("init")+" makes this one")
	}
	if err != nil {
		return Finding{}, err
	}
	id, err := d.Locker.CollectionID(ctx)
	var layout *lockcore.LayoutError
	switch {
	case errors.As(err, &layout):
		return finding(Broken, err.Error(), "nothing was written there: name the collection of your workers with --database and --collection")
	case err != nil:
		return Finding{}, err
	}
	return ok("%s.%s, ID %s: all workers must report the same ID. If steps are refused that carry that of a dropped collection, %s tells them so",
		d.Collection.Database().Name(), d.Collection.Name(), id, d.CommandWithReason([]string{"replaces"}, "OLD-ID"))
}

// contendedIndex is the partial index that finds the resources with waiters or kept holds.
const contendedIndex = "lockstep_attn"

func (d *Doctor) indexes(ctx context.Context) (Finding, error) {
	_, missing, err := d.Locker.MissingIndexes(ctx)
	if err != nil {
		return Finding{}, err
	}
	if len(missing) > 0 {
		return finding(Warning, "not there: "+strings.Join(missing, ", "),
			d.command("init")+" makes them: without them, idle documents stay, and background work reads all"+dropFirst(d.Collection.Name(), missing))
	}
	return d.indexUse(ctx)
}

// dropFirst returns the command of MongoDB's shell for the first index that exists with another definition, if there is one.
func dropFirst(collection string, missing []string) string {
	for _, index := range missing {
		if name, _, differs := strings.Cut(index, " "); differs {
			return fmt.Sprintf("; it makes no index whose name is taken, so drop it first: db.getCollection(%q).dropIndex(%q)", collection, name)
		}
	}
	return ""
}

// manyDocuments is the size from which on a server that does not use the index reads far too much.
const manyDocuments = 10_000

// indexUse asks the server how it would find the contended resources.
func (d *Doctor) indexUse(ctx context.Context) (Finding, error) {
	find := bson.D{{Key: "find", Value: d.Collection.Name()}, {Key: "filter", Value: bson.D{{Key: "attn", Value: bson.D{{Key: "$gte", Value: ""}}}}}}
	plan, err := d.Collection.Database().RunCommand(ctx, bson.D{{Key: "explain", Value: find}, {Key: "verbosity", Value: "queryPlanner"}}).Raw()
	if err != nil {
		return ok("both are there; the server does not explain whether it uses them: %v", err)
	}
	if strings.Contains(plan.String(), contendedIndex) {
		return ok("both are there, and used to find what is contended")
	}
	n, err := d.Collection.EstimatedDocumentCount(ctx)
	switch {
	case err != nil:
		return Finding{}, err
	case n < manyDocuments:
		return ok("both are there; among %s the server needs none", table.Count(n, "document"))
	}
	return finding(Warning, fmt.Sprintf("both are there, and the server reads all %s to find what is contended", table.Count(n, "document")),
		"compare lockstep_attn with the one that "+d.command("init")+" makes in an empty collection")
}

const (
	// probe is the resource that the doctor locks for a moment.
	probe = "lockstep/doctor"
	// unauthorized is the server's error code for a missing right.
	unauthorized = 13
	slowCommand  = 100 * time.Millisecond
)

func (d *Doctor) writing(ctx context.Context) (Finding, error) {
	if d.ReadOnly {
		return finding(Unknown, "not tried: nothing is written here", d.command("doctor")+" tries it")
	}
	began := time.Now()
	s, err := d.Locker.TryAcquire(ctx, lockcore.StepRequest{Caller: lockcore.Caller{LockID: probe}, Resources: []lockcore.Resource{lockcore.Shared(probe)}, TTL: time.Minute})
	if err == nil {
		err = s.Leave(ctx)
	}
	var refused mongo.ServerError
	switch {
	case errors.As(err, &refused) && refused.HasErrorCode(unauthorized):
		return finding(Broken, err.Error(), "the database role has to allow find, insert and update on the collection; createIndex is for lockstep init alone")
	case err != nil:
		return Finding{}, err
	}
	took := (time.Since(began) / 2).Round(100 * time.Microsecond)
	if took > slowCommand {
		return finding(Warning, fmt.Sprintf("a command takes %s", took), "each step waits for two: see the database's load, and how far away it is")
	}
	return ok("a lock was taken and left, %s for each", took)
}

// commits looks for sagas that have committed in the last 24 hours although they had lost a lock.
func (d *Doctor) commits(ctx context.Context) (Finding, error) {
	missed, err := d.Missed(ctx)
	if err != nil {
		return Finding{}, err
	}
	if len(missed) == 0 {
		return ok("no saga of the last 24 h committed after it had lost a lock")
	}
	first := missed[0]
	if first.Resource = d.ResourceName(first.Resource); d.Discreet {
		first.Reason = "" // it may name the resource
	}
	return finding(Warning, fmt.Sprintf("%d in 24 h came after a loss, such as: %s", len(missed), &first),
		"another party may have used the resource between the saga's steps: check what both did")
}

// documents looks for documents that cannot be decoded. It reads all documents.
func (d *Doctor) documents(ctx context.Context) (Finding, error) {
	resources, err := d.Resources(ctx, lockcore.Filter{})
	if err != nil {
		return Finding{}, err
	}
	var damaged, foreign []string
	for i := range resources {
		switch r := &resources[i]; {
		case r.foreign:
			foreign = append(foreign, d.ResourceName(r.Name))
		case r.Damaged != "":
			damaged = append(damaged, fmt.Sprintf("%q (%s)", d.ResourceName(r.Name), r.Damaged))
		}
	}
	switch {
	case len(damaged) > 0:
		what := fmt.Sprintf("%d cannot be decoded, and nobody can lock %s: %s", len(damaged), table.Word(len(damaged), "this resource", "these resources"), firstNames(damaged))
		if len(foreign) > 0 {
			what += fmt.Sprintf("; %d %s an _id that is not a name: %s", len(foreign), table.Word(len(foreign), "has", "have"), firstNames(foreign))
		}
		return finding(Broken, what, "if another program wrote them, delete them; otherwise let those who use these resources end first, since the document has their locks. "+
			d.CommandWithReason([]string{"clear"})+" ends all locks, and deletes those whose _id is a name")
	case len(foreign) > 0:
		return finding(Warning, fmt.Sprintf("%d %s an _id that is not the name of a resource: %s", len(foreign), table.Word(len(foreign), "has", "have"), firstNames(foreign)),
			"another program wrote them. They keep nobody from locking; delete them, and keep the collection for locks")
	}
	return ok("all can be decoded")
}

// firstNames joins the first names of a list, and counts the others.
func firstNames(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// semaphores looks for resources whose shared holders and waiters differ in their limits, or in those of their policies. It reads all documents.
func (d *Doctor) semaphores(ctx context.Context) (Finding, error) {
	resources, err := d.Resources(ctx, lockcore.Filter{})
	if err != nil {
		return Finding{}, err
	}
	var differ []string
	for i := range resources {
		r, limits := &resources[i], map[int]bool{}
		for _, e := range slices.Concat(r.Holders, r.Waiters) {
			if e.Mode == lockcore.ModeShared && e.State != lockcore.StateDraining && e.ExpiresIn > 0 {
				limits[e.limit()] = true
			}
		}
		if len(limits) > 1 {
			text := strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(limits))), "[]")
			differ = append(differ, fmt.Sprintf("%q (limits %s)", d.ResourceName(r.Name), strings.ReplaceAll(text, " ", ", ")))
		}
	}
	if len(differ) > 0 {
		return finding(Warning, fmt.Sprintf("%s requested with different limits, such as %s; 0 is none", table.Count(len(differ), "resource")+table.Word(len(differ), " is", " are"), differ[0]),
			"a request counts all holders against its own limit: let all requests of a semaphore name the same one")
	}
	return ok("all requests of a semaphore name the same limit")
}

// maxCollections bounds the collections that otherCollections reads.
const maxCollections = 100

// otherCollections looks for workers of the same namespace that keep their locks in another collection of the database:
// such a collection has the lock of a janitor.
func (d *Doctor) otherCollections(ctx context.Context) (Finding, error) {
	db := d.Collection.Database()
	names, err := db.ListCollectionNames(ctx, bson.D{{Key: "type", Value: "collection"}})
	if err != nil {
		return Finding{}, err
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(name string) bool { return name == d.Collection.Name() })
	var used []string
	for _, name := range names[:min(len(names), maxCollections)] {
		has, err := d.hasJanitor(ctx, db.Collection(name))
		if err != nil {
			return Finding{}, err
		}
		if has {
			used = append(used, strconv.Quote(name))
		}
	}
	switch {
	case len(used) > 0:
		return finding(Broken, fmt.Sprintf("workers of this namespace also use the collection %s: the locks of one collection exclude nothing in the other", strings.Join(used, ", ")),
			"give all workers the same collection, and let the workflows of the others end first")
	case len(names) > maxCollections:
		return finding(Unknown, fmt.Sprintf("%s has more than %d other collections", db.Name(), maxCollections), "give the locks a database of their own")
	}
	return ok("no other collection of database %s has locks of this namespace's workers", db.Name())
}

// hasJanitor reports whether a janitor of the namespace works on a collection, which may contain other things than locks.
func (d *Doctor) hasJanitor(ctx context.Context, coll *mongo.Collection) (bool, error) {
	id := bson.D{{Key: "_id", Value: janitor.LockName(d.Temporal.NamespaceID)}}
	err := coll.FindOne(ctx, id, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	locker, err := lockcore.New(coll, lockcore.Config{})
	if err != nil {
		return false, err
	}
	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }() // it has nothing under way
	active, err := activeJanitor(ctx, locker, d.Temporal.NamespaceID)
	var layout *lockcore.LayoutError
	if errors.As(err, &layout) || errors.Is(err, lockcore.ErrDamaged) { // the document is not a lock
		return false, nil
	}
	return active != nil, err
}

// activeJanitor returns the hold of the janitor that works for a namespace, or nil.
func activeJanitor(ctx context.Context, locker *lockcore.Locker, namespaceID string) (*lockcore.Status, error) {
	for s, err := range locker.Status(ctx, lockcore.Filter{Resource: janitor.LockName(namespaceID)}) {
		if err != nil {
			return nil, err
		}
		if s.State == lockcore.StateHolding && s.ExpiresIn > 0 {
			return &s, nil
		}
	}
	return nil, nil //nolint:nilnil // no janitor works
}
