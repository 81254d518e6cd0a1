package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/examples/transfer"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// openingBalance of each account, in cents.
const openingBalance = 100_000

// ErrWrong says that money was lost or an audit was wrong.
var ErrWrong = errors.New("isolation was violated")

// run is one run of the demo.
type run struct {
	cfg Config
	id  string // names the task queue and the folder
	// short ends each workflow's ID, and tells the runs of one day apart.
	short string
	dir   string // traces and logs
	db    *mongo.Database
	tc    client.Client
}

// Run runs the demo. The error is ErrWrong if money was lost or an audit was wrong, ErrUsage if the
// configuration cannot be run, and ctx's cause if it was cancelled. It leaves nothing behind but traces.
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
	if err := os.MkdirAll(r.dir, 0o755); err != nil { //nolint:gosec // traces are for others to read
		return fmt.Errorf("--traces: %w", err)
	}
	observed, err := observe(ctx, "lockstep-demo", filepath.Join(r.dir, "demo.json"), cfg.Err)
	if err != nil {
		return err
	}
	defer observed.Shutdown(ctx)
	log, err := os.Create(filepath.Join(r.dir, "demo.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // nothing of worth
	if r.tc, err = connectTemporal(ctx, cfg.Temporal, observed.Traces, log); err != nil {
		_ = os.RemoveAll(r.dir)      // nothing is in it yet
		_ = os.Remove(cfg.TracesDir) // and if it was made for this, nothing in that; else it stays
		return err
	}
	defer r.tc.Close()
	r.db = mc.Database("lockstep_" + strings.ReplaceAll(r.id, "-", "_"))
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
	p := &pool{run: r, died: make(chan *process, r.cfg.Workers+1)}
	defer p.stop()
	for range r.cfg.Workers {
		if err := p.start(ctx); err != nil {
			return err
		}
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

// terminate ends the workflows that a cancelled run left: no worker would work on them any more.
func (r *run) terminate(ctx context.Context, res *results) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, id := range res.open() {
		_ = r.tc.TerminateWorkflow(ctx, id, "", "the demo was stopped") // it may have ended just now
	}
}
