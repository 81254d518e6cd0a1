package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// What a finding says. Unknown is also the status of a workflow run that Temporal does not know.
const (
	OK      = "ok"
	Warning = "warning"
	Broken  = "broken"
	Unknown = "unknown"
)

// Finding is what the doctor found of one thing.
type Finding struct {
	About string `json:"about"`
	// State is one of the constants. Unknown is never a guess: the question was not answered.
	State string `json:"state"`
	What  string `json:"what"`
	// Advice is what to do, unless all is well.
	Advice string `json:"advice,omitempty"`
}

// Patient is what the doctor looks at.
type Patient struct {
	Site
	Logger sdklog.Logger
}

// Examine looks at the database first, and then at Temporal and at what workflows have left.
func (p *Patient) Examine(ctx context.Context) []Finding {
	all := []func(context.Context) Finding{
		p.server, p.topology, p.clock, p.layout, p.indexes, p.writes, p.frontend, p.questions, p.janitors, p.collections, p.workers, p.pollers,
		p.left, p.deadlocks,
	}
	findings := make([]Finding, len(all))
	for i, check := range all {
		ctx, cancel := context.WithTimeout(ctx, time.Minute) // what stays behind is asked about run by run
		findings[i] = check(ctx)
		cancel()
	}
	return findings
}

func unanswered(about string, err error) Finding {
	return Finding{about, Unknown, err.Error(), "the question was not answered: mend that first"}
}

// build is the server's answer to buildInfo.
type build struct {
	Version string
	// FerretDB is present if the server is FerretDB. Version is then that of the MongoDB that it emulates.
	FerretDB bson.Raw `bson:"ferretdb"`
}

func (p *Patient) build(ctx context.Context) (b build, _ error) {
	return b, p.Collection.Database().RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&b)
}

func (b build) isFerretDB() bool { return len(b.FerretDB) > 0 }

func (p *Patient) server(ctx context.Context) Finding {
	const about = "database"
	b, err := p.build(ctx)
	if err != nil {
		return unanswered(about, err)
	}
	what := "MongoDB " + b.Version
	if b.isFerretDB() {
		what = "FerretDB, which speaks for MongoDB " + b.Version
	}
	return Finding{about, OK, what, ""}
}

// membership is the server's answer to hello.
type membership struct {
	SetName string   `bson:"setName"`
	Msg     string   `bson:"msg"`
	Hosts   []string `bson:"hosts"`
}

func (p *Patient) topology(ctx context.Context) Finding {
	var m membership
	if err := p.Collection.Database().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&m); err != nil {
		return unanswered(aboutTopology, err)
	}
	b, err := p.build(ctx)
	if err != nil {
		return unanswered(aboutTopology, err)
	}
	return topologyFinding(m, b)
}

const aboutTopology = "replica set"

func topologyFinding(m membership, b build) Finding {
	switch {
	case m.Msg == "isdbgrid":
		return Finding{aboutTopology, OK, "a sharded cluster", ""}
	case m.SetName == "" && b.isFerretDB():
		return Finding{aboutTopology, Warning, "FerretDB has no replica sets", "locks are as durable as its PostgreSQL: keep synchronous_commit on, and see what a failover there loses"}
	case m.SetName == "":
		return Finding{
			aboutTopology, Broken, "a standalone server, in no replica set",
			"after a crash it can lose writes that it acknowledged with majority, and with them locks (SERVER-139311): run a replica set, best of three members",
		}
	case len(m.Hosts) < 3:
		return Finding{aboutTopology, Warning, fmt.Sprintf("replica set %q has %d members", m.SetName, len(m.Hosts)), "with fewer than three no majority is left when one fails"}
	}
	return Finding{aboutTopology, OK, fmt.Sprintf("replica set %q of %d members", m.SetName, len(m.Hosts)), ""}
}

// mostOffset is what the clocks of this machine and of the server may differ by before that is worth a word.
const mostOffset = 2 * time.Second

func (p *Patient) clock(ctx context.Context) Finding {
	const about = "clocks"
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	asked := time.Now()
	if err := p.Collection.Database().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return unanswered(about, err)
	}
	if hello.LocalTime.IsZero() {
		return Finding{about, Unknown, "the server does not say its time", ""}
	}
	offset := hello.LocalTime.Sub(asked.Add(time.Since(asked) / 2)).Round(time.Millisecond)
	if offset.Abs() > mostOffset {
		return Finding{about, Warning, fmt.Sprintf("the server's clock is %s from this machine's", offset), "locks go by the server's clock, and nothing goes wrong; but times that people compare differ: run NTP on both"}
	}
	return Finding{about, OK, fmt.Sprintf("the server's clock is %s from this machine's", offset), ""}
}

func (p *Patient) layout(ctx context.Context) Finding {
	const about = "collection"
	id, err := p.Locker.CollectionID(ctx)
	var layout *lockcore.LayoutError
	switch {
	case errors.As(err, &layout):
		return Finding{about, Broken, err.Error(), "give these locks a collection of their own"}
	case err != nil:
		return unanswered(about, err)
	}
	return Finding{about, OK, fmt.Sprintf("%s.%s, ID %s: all workers have to say the same ID", p.Collection.Database().Name(), p.Collection.Name(), id), ""}
}

func (p *Patient) indexes(ctx context.Context) Finding {
	const about = "indexes"
	specs, err := p.Collection.Indexes().ListSpecifications(ctx)
	if err != nil {
		return unanswered(about, err)
	}
	var missing []string
	for _, name := range []string{"lockstep_idle", "lockstep_attn"} {
		if !slices.ContainsFunc(specs, func(s mongo.IndexSpecification) bool { return s.Name == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return Finding{
			about, Warning, "not there: " + strings.Join(missing, ", "),
			p.command("init") + " makes them: without, idle documents stay for ever, and background work reads all",
		}
	}
	return p.used(ctx, Finding{about, OK, "both are there", ""})
}

// manyDocuments is from how many on a server that reads them all to find a few does so by mistake.
const manyDocuments = 10_000

// used asks the server how it finds what is contended among all documents.
func (p *Patient) used(ctx context.Context, f Finding) Finding {
	find := bson.D{{Key: "find", Value: p.Collection.Name()}, {Key: "filter", Value: bson.D{{Key: "attn", Value: bson.D{{Key: "$gte", Value: ""}}}}}}
	plan, err := p.Collection.Database().RunCommand(ctx, bson.D{{Key: "explain", Value: find}, {Key: "verbosity", Value: "queryPlanner"}}).Raw()
	if err != nil {
		f.What += "; the server does not explain whether it uses them: " + err.Error()
		return f
	}
	if strings.Contains(plan.String(), "lockstep_attn") {
		f.What += ", and used to find what is contended"
		return f
	}
	n, err := p.Collection.EstimatedDocumentCount(ctx)
	switch {
	case err != nil:
		return unanswered(f.About, err)
	case n < manyDocuments:
		f.What += fmt.Sprintf("; among %d documents the server needs none", n)
		return f
	}
	return Finding{
		f.About, Warning, fmt.Sprintf("both are there, and the server reads all %d documents to find what is contended", n),
		"compare lockstep_attn with the one that " + p.command("init") + " makes in an empty collection",
	}
}

const (
	// probe is the resource that the doctor locks for a moment.
	probe = "lockstep/doctor"
	// unauthorized is the server's error code for a right that is missing.
	unauthorized = 13
)

func (p *Patient) writes(ctx context.Context) Finding {
	const about = "writing"
	began := time.Now()
	s, err := p.Locker.TryAcquire(ctx, party.Request{LockID: probe, Resources: []lockcore.Resource{lockcore.Shared(probe)}, TTL: time.Minute})
	if err == nil {
		err = s.Leave(ctx)
	}
	if err != nil {
		var refused mongo.ServerError
		if errors.As(err, &refused) && refused.HasErrorCode(unauthorized) {
			return Finding{about, Broken, err.Error(), "the database role has to allow find, insert and update on the collection; createIndex is for lockstep init alone"}
		}
		return unanswered(about, err)
	}
	took := (time.Since(began) / 2).Round(100 * time.Microsecond)
	if took > 100*time.Millisecond {
		return Finding{about, Warning, fmt.Sprintf("a command takes %s", took), "each step waits for two: see the database's load, and how far away it is"}
	}
	return Finding{about, OK, fmt.Sprintf("a lock was taken and left, %s for each", took), ""}
}

func (p *Patient) frontend(ctx context.Context) Finding {
	const about = "Temporal"
	info, err := p.Temporal.Service.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return unanswered(about, err)
	}
	return Finding{about, OK, fmt.Sprintf("server %s, namespace %q, ID %s", info.GetServerVersion(), p.Temporal.Namespace, p.Temporal.NamespaceID), ""}
}

func (p *Patient) questions(ctx context.Context) Finding {
	const about = "questions"
	if _, err := p.ask(ctx, probe, ""); err != nil {
		var denied *serviceerror.PermissionDenied
		if errors.As(err, &denied) {
			return Finding{about, Broken, err.Error(), "the credentials of workers and janitors have to allow DescribeWorkflowExecution"}
		}
		return unanswered(about, err)
	}
	return Finding{about, OK, "Temporal answers questions about workflows", ""}
}

func (p *Patient) janitors(ctx context.Context) Finding {
	const about = "janitor"
	for s, err := range p.Locker.Status(ctx, lockcore.Filter{Resource: janitor.Office(p.Temporal.NamespaceID)}) {
		switch {
		case err != nil:
			return unanswered(about, err)
		case s.State == lockcore.StateHolding && s.ExpiresIn > 0:
			return Finding{about, OK, fmt.Sprintf("one works on %s, heard of %s ago", s.Host, Short(s.Silent)), ""}
		}
	}
	return Finding{
		about, Warning, "none works for this namespace and collection",
		"every worker with the plugin on its client has one, unless it is switched off; or run lockstep janitor",
	}
}

func (p *Patient) left(ctx context.Context) Finding {
	const about = "orphans"
	found, err := p.Orphans(ctx, p.Logger)
	switch {
	case err != nil:
		return unanswered(about, err)
	case len(found) > 0:
		return Finding{
			about, Warning, fmt.Sprintf("%d locks and places of closed workflows, such as that of %q on %q", len(found), found[0].Party.Name, found[0].Resource),
			"a janitor ends them within a minute; " + p.command("janitor", "--once") + " does now",
		}
	}
	return Finding{about, OK, "closed workflows have left nothing", ""}
}

func (p *Patient) deadlocks(ctx context.Context) Finding {
	const about = "deadlocks"
	found, err := p.Deadlocks(ctx)
	switch {
	case err != nil:
		return unanswered(about, err)
	case len(found) > 0:
		return Finding{about, Warning, p.DeadlockText(found[0]), "one that stays for 10 s says that no process looks after the queues: see the janitor"}
	}
	return Finding{about, OK, "there is none", ""}
}

// PrintFindings prints them, what is wrong with its advice.
func PrintFindings(out io.Writer, findings []Finding) error {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-8s %-12s %s\n", f.State, f.About, f.What)
		if f.Advice != "" {
			fmt.Fprintf(&b, "%21s → %s\n", "", f.Advice)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
