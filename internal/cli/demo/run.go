// Package demo runs the transfer example as a load: concurrent transfers on worker processes, of which one is killed, and
// an auditor that must never see money missing.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/examples/transfer"
	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Config configures the demo. Package cmd/lockstep fills it from flags.
type Config struct {
	Transfers   int
	Accounts    int
	Kill        bool
	Guards      bool
	Concurrency int
	// Keep leaves the database of the run.
	Keep bool
	// TracesDir is the folder in which the run makes its own.
	TracesDir string

	// Temporal has the settings of the connection.
	Temporal *connect.Frontend
	MongoURI string
	// TemporalUI is the address of Temporal's web UI; empty if it is not known.
	TemporalUI string
	// JaegerUI is the address of Jaeger's, for links from the report about waits; empty if there is none.
	JaegerUI string

	Out io.Writer // results
	Err io.Writer // progress
}

// ErrUsage marks errors of the demo's caller.
var ErrUsage = errors.New("wrong usage")

// Check refuses values out of bounds and missing addresses.
func (c *Config) Check() error {
	for _, b := range []struct {
		flag          string
		value, lo, hi int
	}{
		{"--transfers", c.Transfers, 1, 100_000},
		{"--accounts", c.Accounts, 2, 90},
		{"--concurrency", c.Concurrency, 1, 500},
	} {
		if b.value < b.lo || b.value > b.hi {
			return fmt.Errorf("%w: %s is %d: want %d to %d", ErrUsage, b.flag, b.value, b.lo, b.hi)
		}
	}
	for _, e := range []struct{ name, value string }{
		{"TEMPORAL_ADDRESS", c.Temporal.AddressFrom}, {"LOCKSTEP_MONGODB_URI", c.MongoURI},
	} {
		if e.value == "" {
			return fmt.Errorf("%s is not set: it is the address of a server.\n%s", e.name, remedy)
		}
	}
	return nil
}

const remedy = `Start them, and set it, with:
  make stack-up && eval "$(make -s stack-env)"
or run "make demo", which does both`

// FromEnvironment reads the addresses from the environment and from Temporal's configuration file.
func (c *Config) FromEnvironment() (err error) {
	c.MongoURI = os.Getenv("LOCKSTEP_MONGODB_URI")
	c.TemporalUI = os.Getenv("LOCKSTEP_TEMPORAL_UI")
	c.JaegerUI = os.Getenv("LOCKSTEP_JAEGER_UI")
	c.Temporal, err = connect.FindFrontend(connect.TemporalFlags{})
	return err
}

const (
	// workers is the number of worker processes.
	workers = 3
	// seed draws the transfers, and which of them fail their check.
	seed = 1
)

// openingBalance of each account, in cents.
const openingBalance = 100_000

// ErrWrong is returned if money was lost or an audit was wrong.
var ErrWrong = errors.New("isolation was violated")

// run is one run of the demo.
type run struct {
	cfg Config
	id  string // names the task queue and the folder
	// short is the suffix of workflow IDs, different for each run of a day.
	short string
	dir   string // traces and logs
	db    *mongo.Database
	tc    client.Client
}

// Run runs the demo. The error is ErrWrong if money was lost or an audit was wrong, ErrUsage if the configuration is
// invalid, and ctx's cause if it was cancelled. It leaves only traces.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := cfg.Check(); err != nil {
		return err
	}
	r := &run{cfg: cfg, id: "demo-" + time.Now().UTC().Format("20060102-150405.000")}
	r.id = strings.ReplaceAll(r.id, ".", "-")
	r.short = strconv.FormatInt(time.Now().UnixMilli()/100, 36)
	mc, err := connectMongo(ctx, cfg.MongoURI)
	if err != nil {
		return err
	}
	defer func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }() // the process ends anyway
	r.dir = filepath.Join(cfg.TracesDir, r.id)
	observed, err := observe(ctx, "lockstep-demo", r.dir, "demo", cfg.Err)
	if err != nil {
		return fmt.Errorf("--traces: %w", err)
	}
	defer observed.Shutdown(ctx)
	log, err := os.Create(filepath.Join(r.dir, "demo.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if r.tc, err = connectTemporal(ctx, cfg.Temporal, observed.Traces, log); err != nil {
		_ = os.RemoveAll(r.dir)      // it is still empty
		_ = os.Remove(cfg.TracesDir) // fails if it contains other runs
		return err
	}
	defer r.tc.Close()
	r.db = mc.Database("lockstep_" + strings.ReplaceAll(r.id, "-", "_"))
	told := context.AfterFunc(ctx, func() {
		_, _ = fmt.Fprintf(cfg.Err, "the demo stops and removes its data; its traces remain in %s\n", r.dir)
	})
	defer told()
	if !cfg.Keep {
		defer func() { err = errors.Join(err, r.dropDatabase(ctx)) }()
	}
	return r.play(ctx)
}

func (r *run) dropDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := r.db.Drop(ctx); err != nil {
		return fmt.Errorf("drop the demo's database %s: %w", r.db.Name(), err)
	}
	return nil
}

// play prepares the data, starts the workers, runs the load and reports.
func (r *run) play(ctx context.Context) error {
	locker, err := lockcore.New(r.db.Collection("locks"), lockcore.Config{})
	if err != nil {
		return err
	}
	if err := locker.CreateIndexes(ctx); err != nil {
		return err
	}
	if err := transfer.OpenAccounts(ctx, r.db.Collection("accounts"), r.cfg.Accounts, openingBalance); err != nil {
		return fmt.Errorf("open the accounts: %w", err)
	}
	p := newPool(r)
	defer p.stop()
	if err := p.StartAll(ctx); err != nil {
		return err
	}
	res, err := r.load(ctx, p)
	if err != nil {
		r.terminate(ctx, res)
		return err
	}
	p.stop() // flushes the spans that the report reads
	if err := r.measure(ctx, res); err != nil {
		return err
	}
	return res.report(r)
}

// terminate ends the open workflows of a cancelled run, which has no workers left.
func (r *run) terminate(ctx context.Context, res *results) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, id := range res.open() {
		_ = r.tc.TerminateWorkflow(ctx, id, "", "the demo was stopped") // it may have ended just now
	}
}
