package verify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/proof/linear"
)

// Options configures a run. URI, Database and Client are required.
type Options struct {
	URI      string
	Database string
	// Client is a command that runs RunClient on its standard streams.
	Client harness.Command
	// Err gets the errors of client processes. Defaults to none.
	Err io.Writer
	// Version is that of the command, for the report.
	Version string
	// Clients is the number of client processes of the histories: 2 to 12.
	Clients int
	// Seed draws the operations and the cuts. Each further round has the next seed.
	Seed uint64
	// Duration repeats the checks with clients until it is over. Defaults to one round.
	Duration time.Duration
	// Control names the defect of a control. Then only the checks with clients are made, and the first
	// violation ends the run. Defaults to none.
	Control string
	// StepDown makes the primary step down in the middle of a history.
	StepDown bool
	// Progress, if set, is called with each check that has ended.
	Progress func(Check)
	// only names the checks of a test.
	only []string
}

var (
	// ErrUsage marks errors of the caller.
	ErrUsage = errors.New("wrong usage")
	// ErrViolated is returned if a check was violated.
	ErrViolated = errors.New("a guarantee was violated")
)

// finding bounds the search for the defect of a control. Defects are drawn: one seed may show none.
const finding = 2 * time.Minute

// most is the greatest number of clients. Some checks start a few in addition.
const most = 12

// Check refuses values out of bounds.
func (o *Options) Check() error {
	switch {
	case o.Clients < 2 || o.Clients > most:
		return fmt.Errorf("%w: --clients is %d: want 2 to %d", ErrUsage, o.Clients, most)
	case o.Duration < 0:
		return fmt.Errorf("%w: --duration is %s: want 0 or more", ErrUsage, o.Duration)
	case o.Control != "" && !slices.Contains(Controls(), o.Control):
		return fmt.Errorf("%w: --control is %q: want %s", ErrUsage, o.Control, strings.Join(Controls(), ", "))
	case o.Control != "" && o.StepDown:
		return fmt.Errorf("%w: --control and --step-down exclude each other", ErrUsage)
	}
	return nil
}

// run is a run of the checks.
type run struct {
	o    Options
	coll *mongo.Collection
	// store reads what clients have written, and the server's time. No control breaks it.
	store store.Store
	// patience bounds the removal of the collection.
	patience time.Duration
	// began is the origin of the times in histories.
	began      time.Time
	operations atomic.Int64
	report     *Report
	// undecided has the checks of which some rounds were not possible.
	undecided map[string]undecided
}

// undecided is the number of a check's rounds that were not possible, and the latest reason.
type undecided struct {
	rounds int
	reason string
}

// test is a check of the list.
type test struct {
	name, shows, unit, guarantee string
	// clients is set if the check uses client processes. Such checks are repeated.
	clients bool
	run     func(r *run, ctx context.Context, seed uint64) (outcome, error)
}

// outcome is the result of a check in one round.
type outcome struct {
	count int
	// seen is the first violation, reason explains why the check was not possible, and note has other facts.
	seen, reason, note string
	// late is set if seen is only that something came late, which an outage of the database explains.
	late bool
}

const stepDownCheck = "step-down"

// The check of the indexes is first: PostgreSQL plans by statistics, and those of a collection that had large
// documents before are wrong about the small ones.
var tests = []test{
	{
		"indexes", "the queries of the store use their indexes", "queries",
		"a query that runs in the background reads an index, not all documents", false, (*run).indexes,
	},
	{
		"scenarios", "the rules of the locks, through the update loop and this database", "scenarios",
		"each scenario of the rules has the outcome that it specifies", false, (*run).scenarios,
	},
	{
		"histories", "requests of several processes are linearizable", "operations",
		"one holder exclusively or several in shared mode; a free lock is granted, a held one is not lost; fences increase", true, (*run).histories,
	},
	{
		"queues", "waits of several processes are linearizable", "operations",
		"one holder exclusively or several in shared mode; a held lock is not lost; fences increase", true, (*run).queues,
	},
	{
		"expiry", "a killed process keeps its locks until they end by the server's clock", "locks",
		"a waiter is granted the lock after its end by the server's clock, and within " + mostLate.String() + " of it", true, (*run).expiry,
	},
	{
		"trust", "a process stops trusting a lease before another is granted the lock", "questions",
		"no process trusts a lease after its end, or while another process holds; a renewed lock is not given away", true, (*run).trust,
	},
	{
		"fences", "fences increase and follow the server's clock, even if a document was removed", "fences",
		"each fence is greater than the one before, and at most " + fenceSlack.String() + " behind the server's time in milliseconds", true, (*run).fences,
	},
	{
		"cuts", "the same as histories, while connections are cut", "operations",
		"no lock is lost or granted twice, a failed request holds nothing once it was left, and clients work again within " + worksAgain.String(), true, (*run).cuts,
	},
	{
		stepDownCheck, "the same as histories, while the primary steps down", "operations",
		"no lock is lost or granted twice, and clients work again within " + worksAgain.String(), true, (*run).stepDown,
	},
}

// Run makes the checks. The error is ErrViolated if one was violated, even if ctx ended later; ErrUsage if the options are
// invalid; and ctx's cause if ctx ended. The report is nil if no check was begun.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Err == nil {
		o.Err = io.Discard
	}
	o.Err = table.NewWriter(o.Err) // which several processes may use
	if o.Control != "" {
		o.Duration = cmp.Or(o.Duration, finding)
	}
	mc, err := connect.Mongo(ctx, o.URI, "lockstep verify")
	if err != nil {
		return nil, err
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }() // the process ends anyway
	r := &run{o: o, began: time.Now(), patience: removing, undecided: map[string]undecided{}}
	r.coll = mc.Database(o.Database).Collection("lockstep_verify_" + strings.ToLower(rand.Text()[:12]))
	r.store = store.New(r.coll)
	server, err := describe(ctx, r.coll)
	if err != nil {
		return nil, err
	}
	if err := checkStepDown(o, server); err != nil {
		return nil, err
	}
	r.report = &Report{Version: o.Version, Started: r.began.UTC().Truncate(time.Millisecond), Seed: o.Seed, Control: o.Control, Server: server, Checks: []Check{}}
	if err := r.prepare(ctx); err != nil {
		if r.remove(ctx); r.report.Left != "" {
			err = fmt.Errorf("%w; the collection %s could not be removed: drop it", err, r.report.Left)
		}
		return nil, err
	}
	err = r.rounds(ctx)
	r.remove(ctx)
	r.report.Took, r.report.Operations = time.Since(r.began), r.operations.Load()
	violated := slices.ContainsFunc(r.report.Checks, func(c Check) bool { return c.Result == Violated })
	switch {
	case violated && ctx.Err() != nil:
		r.report.Result = Violated
		return r.report, ErrViolated
	case violated:
		r.report.Result = Violated
		return r.report, errors.Join(ErrViolated, err)
	case ctx.Err() != nil:
		r.report.Result = Incomplete
		return r.report, context.Cause(ctx)
	case err != nil:
		r.report.Result, r.report.Error = Incomplete, err.Error()
		return r.report, err
	}
	r.report.Result = Held
	return r.report, nil
}

// rounds makes all checks, and then repeats those with clients until the time is over.
func (r *run) rounds(ctx context.Context) error {
	for round := uint64(0); ; round++ {
		r.report.Rounds++
		for i := range tests {
			t := &tests[i]
			if !r.wants(t, round) {
				continue
			}
			stop, err := r.check(ctx, t, r.o.Seed+round)
			if stop || err != nil {
				return err
			}
			if round > 0 && time.Since(r.began) >= r.o.Duration {
				return nil
			}
		}
		if time.Since(r.began) >= r.o.Duration {
			return nil
		}
	}
}

func (r *run) wants(t *test, round uint64) bool {
	if t.name == stepDownCheck && !r.o.StepDown || r.o.only != nil && !slices.Contains(r.o.only, t.name) {
		return false
	}
	return t.clients || (round == 0 && r.o.Control == "")
}

// check makes one check and adds its result to the report. With stop, the run must end.
func (r *run) check(ctx context.Context, t *test, seed uint64) (stop bool, err error) {
	began := time.Now()
	found, err := t.run(r, ctx, seed)
	var contradiction *violation
	switch {
	case ctx.Err() != nil:
		return true, context.Cause(ctx)
	case errors.As(err, &contradiction):
		found.seen = contradiction.seen
	case err != nil && found.seen == "": // what was seen before an error counts
		return true, fmt.Errorf("%s: %w", t.name, err)
	}
	i := slices.IndexFunc(r.report.Checks, func(c Check) bool { return c.Name == t.name })
	if i < 0 {
		i = len(r.report.Checks)
		r.report.Checks = append(r.report.Checks, Check{Name: t.name, Shows: t.shows, Unit: t.unit, Result: Held})
	}
	c := &r.report.Checks[i]
	c.Count += found.count
	c.Took += time.Since(began)
	c.Note = found.note
	switch {
	case c.Result == Violated:
	case found.seen != "":
		c.Result, c.Seen, c.Guarantee, c.Seed, c.Reason = Violated, found.seen, t.guarantee, seed, ""
	case found.reason != "":
		r.undecided[t.name] = undecided{r.undecided[t.name].rounds + 1, found.reason}
	}
	if u := r.undecided[t.name]; c.Result != Violated && u.rounds > 0 {
		c.Result, c.Reason = NotPossible, u.reason
		if u.rounds < r.report.Rounds { // a round that held is a result
			c.Result, c.Reason = Held, ""
			c.Note = strings.TrimPrefix(fmt.Sprintf("%s; %d of %d rounds were not possible: %s", c.Note, u.rounds, r.report.Rounds, u.reason), "; ")
		}
	}
	if r.o.Progress != nil {
		r.o.Progress(*c)
	}
	return r.o.Control != "" && c.Result == Violated, nil
}

// judge checks a history.
func judge(history []linear.Operation) outcome {
	granted, refused, unknown := 0, 0, 0
	for _, op := range history {
		switch {
		case !op.Do.Takes():
		case op.Unknown:
			unknown++
		case op.OK:
			granted++
		default:
			refused++
		}
	}
	found := outcome{count: len(history), note: fmt.Sprintf("%d granted, %d refused, %d with an unknown outcome", granted, refused, unknown)}
	result := linear.Check(history, deciding)
	found.seen = result.Seen
	if result.Undecided {
		found.reason = fmt.Sprintf("the history could not be judged within %s: use fewer --clients", deciding)
	}
	return found
}

// deciding bounds the time to judge a history.
const deciding = time.Minute

// Names returns the names of all checks.
func Names() []string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.name
	}
	return names
}
