package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/examples/transfer"
	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/cli/contention/page"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
)

// measure adds the results from the accounts, the histories and the traces.
func (r *run) measure(ctx context.Context, res *results) error {
	cursor, err := r.db.Collection("accounts").Find(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("read the accounts: %w", err)
	}
	var accounts []transfer.Account
	if err := cursor.All(ctx, &accounts); err != nil {
		return fmt.Errorf("read the accounts: %w", err)
	}
	for _, a := range accounts {
		res.total += a.Balance
	}
	if err := r.countEvents(ctx, res); err != nil {
		return err
	}
	return r.readTraces(ctx, res)
}

// countEvents asks Temporal for the length of each transfer's history.
func (r *run) countEvents(ctx context.Context, res *results) error {
	res.events = make([]int64, len(res.ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, id := range res.ids {
		g.Go(func() error {
			d, err := r.tc.DescribeWorkflowExecution(ctx, id, "")
			if err != nil {
				return fmt.Errorf("describe %s: %w", id, err)
			}
			res.events[i] = d.GetWorkflowExecutionInfo().GetHistoryLength()
			return nil
		})
	}
	return g.Wait()
}

// readTraces analyzes the lock spans. Waits last from queued to granted, by the database's clock.
func (r *run) readTraces(ctx context.Context, res *results) error {
	spans, err := contention.Read(ctx, []string{r.dir}, nil)
	if err != nil {
		return fmt.Errorf("read the traces: %w", err)
	}
	if res.locks, err = contention.Analyze(ctx, spans, contention.Options{}); err != nil {
		return err
	}
	if res.locks.Read.LockSpans == 0 { // the control locks nothing
		res.page = "no waits: nothing was locked"
		return nil
	}
	res.page = filepath.Join(r.dir, "contention.html")
	if err := page.WriteFile(res.page, res.locks, page.Options{Title: r.id, TraceURL: page.JaegerTraces(r.cfg.JaegerUI)}); err != nil {
		return fmt.Errorf("write the report about waits: %w", err)
	}
	return nil
}

// report prints the results. It returns an error if they are wrong.
func (s *results) report(r *run) error {
	want := int64(r.cfg.Accounts) * openingBalance
	var rows [][]string
	row := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	row("guards", "%s", map[bool]string{true: "on", false: "OFF (the control)"}[r.cfg.Guards])
	row("transfers", "%d committed, %d compensated, %d failed otherwise", s.committed, s.compensated, s.failed)
	if s.killed != "" {
		row("killed", "%s, by SIGKILL, after half of them", s.killed)
	}
	row("audits", "%d, of which %d failed", s.audits, s.failedAudits)
	row("AUDITS THAT SAW A WRONG TOTAL", "%d", s.wrongAudits)
	row("money", "%s of %s: %s", cents(s.total), cents(want), map[bool]string{true: "conserved", false: "NOT CONSERVED"}[s.total == want])
	locks := &s.locks.Totals
	row("lost locks", "%s undone because of one, %s one", table.Word(s.lost, "1 transfer or audit was", fmt.Sprintf("%d transfers and audits were", s.lost)),
		table.Word(locks.Lost, "1 renewal or entry noticed", fmt.Sprintf("%d renewals or entries noticed", locks.Lost)))
	row("deadlocks", "%d%s", locks.Deadlocks, map[bool]string{true: ", on purpose: a transfer locks its second account only when it needs it. One saga of each was undone and began again"}[locks.Deadlocks > 0])
	row("waits for a lock", "%d of %s; p50 %s, p99 %s (queued to granted, by the database's clock)",
		locks.Waited, table.Count(locks.Acquisitions, "acquisition"), seconds(locks.Wait.P50), seconds(locks.Wait.P99))
	row("history events per transfer", "median %d, most %d", quantile(s.events, 0.5), quantile(s.events, 1))
	row("in Temporal's UI", "%s", r.uiLink())
	row("who waited for whom", "%s", s.page)
	row("traces", "%s (OTLP JSON lines, one file per process; %s)", r.dir, table.Count(s.locks.Read.Broken, "broken line"))
	if err := table.Write(r.cfg.Out, rows...); err != nil {
		return err
	}
	return s.verdict(r, want)
}

func (s *results) verdict(r *run, want int64) error {
	if s.firstFailure != nil {
		_, _ = fmt.Fprintf(r.cfg.Out, "\nthe first failure: %v\n", s.firstFailure)
	}
	var wrong []string
	if s.wrongAudits > 0 {
		wrong = append(wrong, fmt.Sprintf("%s saw a wrong total", table.Count(s.wrongAudits, "audit")))
	}
	if s.total != want {
		wrong = append(wrong, "money is not conserved")
	}
	if s.failed > 0 || s.failedAudits > 0 {
		wrong = append(wrong, fmt.Sprintf("%s and %s failed otherwise", table.Count(s.failed, "transfer"), table.Count(s.failedAudits, "audit")))
	}
	if len(wrong) == 0 {
		if !r.cfg.Guards {
			return errors.New("the control found nothing wrong: the load is too light to show what the guards are for; try more --transfers or --concurrency")
		}
		return nil
	}
	what := strings.Join(wrong, "; ")
	if !r.cfg.Guards {
		what += " (this is what the control is for: the same load without locks)"
	}
	return fmt.Errorf("%w: %s", ErrWrong, what)
}

// uiLink returns the address of the list of this run's workflows.
func (r *run) uiLink() string {
	if r.cfg.TemporalUI == "" {
		return fmt.Sprintf("the workflows of task queue %s (set LOCKSTEP_TEMPORAL_UI for a link)", r.id)
	}
	query := url.Values{"query": {fmt.Sprintf("TaskQueue = %q", r.id)}}
	return strings.TrimRight(r.cfg.TemporalUI, "/") + "/namespaces/" + url.PathEscape(r.cfg.Temporal.Options.Namespace) + "/workflows?" + query.Encode()
}

// quantile returns the nearest-rank quantile, or zero without values.
func quantile(values []int64, q float64) int64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

func cents(n int64) string { return fmt.Sprintf("%d.%02d", n/100, n%100) }

// progress prints a line for each tenth of the transfers.
type progress struct {
	out         io.Writer
	mu          sync.Mutex
	total, done int
}

func (p *progress) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if tenth := max(1, p.total/10); p.done%tenth == 0 || p.done == p.total {
		_, _ = fmt.Fprintf(p.out, "transfers: %d of %d\n", p.done, p.total)
	}
}
