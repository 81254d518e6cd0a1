package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/examples/transfer"
	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// load runs the transfers, with an auditor at the same time, and kills a worker after half of the transfers. If it fails, it
// returns the results so far with the error.
func (r *run) load(ctx context.Context, p *pool) (*results, error) {
	res := &results{running: map[string]bool{}}
	done := &progress{out: r.cfg.Err, total: r.cfg.Transfers}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go p.watch(ctx, fail)
	transfers := r.plan()
	var finished atomic.Int64
	half := make(chan struct{})
	audits, auditing := errgroup.WithContext(ctx) // audits continue after the transfers
	g, ctx := errgroup.WithContext(ctx)
	stop := make(chan struct{})
	audits.Go(func() error { return r.audit(auditing, res, stop) })
	if r.cfg.Kill {
		g.Go(func() error { return r.killAt(ctx, p, res, half) })
	}
	work := make(chan transfer.Transfer)
	g.Go(func() error {
		defer close(work)
		for _, t := range transfers {
			select {
			case work <- t:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	atHalf := int64(max(1, r.cfg.Transfers/2))
	for range r.cfg.Concurrency {
		g.Go(func() error {
			for t := range work {
				if err := r.transfer(ctx, res, t); err != nil {
					return err
				}
				done.add()
				if finished.Add(1) == atHalf {
					close(half)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	if err != nil {
		fail(err) // audits may wait forever otherwise
	}
	close(stop)
	if auditErr := audits.Wait(); err == nil {
		err = auditErr
	}
	return res, err
}

// killAt kills a worker when half is closed.
func (r *run) killAt(ctx context.Context, p *pool, res *results, half <-chan struct{}) (err error) {
	select {
	case <-half:
		res.killed, err = p.kill(ctx)
	case <-ctx.Done():
	}
	return err
}

// plan draws the transfers.
func (r *run) plan() []transfer.Transfer {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // each run has the same load
	transfers := make([]transfer.Transfer, r.cfg.Transfers)
	for i := range transfers {
		from := random.IntN(r.cfg.Accounts)
		to := (from + 1 + random.IntN(r.cfg.Accounts-1)) % r.cfg.Accounts
		transfers[i] = transfer.Transfer{
			ID: fmt.Sprintf("transfer-%04d-%s", i, r.short), Key: fmt.Sprint(i),
			From: transfer.AccountID(from), To: transfer.AccountID(to), Amount: 1 + random.Int64N(5000), Guarded: r.cfg.Guards,
		}
	}
	return transfers
}

// transfer runs one transfer and counts its result. Only failures of the whole run are errors.
func (r *run) transfer(ctx context.Context, res *results, t transfer.Transfer) error {
	err := r.execute(ctx, res, t.ID, transfer.TransferWorkflow, t, nil)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	res.count(t.ID, err)
	return nil
}

// audit runs audits until stop is closed, and then a last one: it finds lasting damage of a load that ended before any audit
// ran at the wrong moment.
func (r *run) audit(ctx context.Context, res *results, stop <-chan struct{}) error {
	a := transfer.Audit{Guarded: r.cfg.Guards}
	for i := range r.cfg.Accounts {
		a.Accounts = append(a.Accounts, transfer.AccountID(i))
	}
	for i, last := 0, false; !last; i++ {
		select {
		case <-stop:
			last = true
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		var total int64
		err := r.execute(ctx, res, fmt.Sprintf("audit-%04d-%s", i, r.short), transfer.AuditWorkflow, a, &total)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		res.audited(err, total == int64(r.cfg.Accounts)*openingBalance)
	}
	return nil
}

func (r *run) execute(ctx context.Context, res *results, id string, workflow, arg, result any) error {
	res.begin(id)
	h, err := r.tc.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: r.id}, workflow, arg)
	if err != nil {
		return err
	}
	err = h.Get(ctx, result)
	if ctx.Err() == nil {
		res.finish(id)
	}
	return err
}

// results are the results of the load.
type results struct {
	mu      sync.Mutex
	running map[string]bool

	ids                               []string // of the transfers
	committed, compensated, failed    int
	audits, wrongAudits, failedAudits int
	// lost counts the transfers and audits that ended with a lost lock.
	lost         int
	killed       string
	firstFailure error
	total        int64
	events       []int64
	// locks is the report of the traces.
	locks *contention.Report
	// page is the file with the report about waits.
	page string
}

func (s *results) begin(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[id] = true
}

func (s *results) finish(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, id)
}

func (s *results) open() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.running))
	for id := range s.running {
		ids = append(ids, id)
	}
	return ids
}

// count counts a transfer by its result. A failed check, missing money and a lost lock were compensated: a failed
// compensation has another error.
func (s *results) count(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, id)
	var app *temporal.ApplicationError
	isBusiness := errors.As(err, &app) && (app.Type() == transfer.FailureCheck || app.Type() == transfer.FailureFunds)
	switch {
	case err == nil:
		s.committed++
	case isBusiness:
		s.compensated++
	case isLost(err):
		s.compensated++
		s.lost++
	default:
		s.failed++
		s.note(err)
	}
}

func (s *results) audited(err error, right bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audits++
	switch {
	case isLost(err):
		s.lost++
	case err != nil:
		s.failedAudits++
		s.note(err)
	case !right:
		s.wrongAudits++
	}
}

// isLost reports whether a workflow ended with a lost lock, because its worker or the database was silent for longer than
// the lock's TTL. That is not a wrong result, unless the saga could not be undone.
func isLost(err error) bool {
	var app *temporal.ApplicationError
	failed := errors.As(err, &app) && app.Type() == wire.FailureSagaFailed
	return !failed && errors.Is(workflows.LockError(err), lockcore.ErrLost)
}

func (s *results) note(err error) {
	if s.firstFailure == nil {
		s.firstFailure = err
	}
}
