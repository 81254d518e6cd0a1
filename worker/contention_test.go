package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/worker/tracefile"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// tracedTo makes spans that go to a file in a folder as soon as they end, so that a process that is killed has written them, and
// Temporal's tracing of them.
func tracedTo(ctx context.Context, folder, name string) (*sdktrace.TracerProvider, interceptor.ClientInterceptor, error) {
	exporter, err := tracefile.New(ctx, folder, tracefile.Options{Name: name})
	if err != nil {
		return nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: provider.Tracer("temporal-sdk-go")})
	return provider, tracing, err
}

// scene is a bundle whose spans go to a file, and whose commands to the database are looked at.
type scene struct {
	*bundle
	traces string // a folder, with a file per process

	mu     sync.Mutex
	sent   map[int64][]rules.Document // the documents of commands that have no answer yet
	writes []write
}

func setScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{traces: t.TempDir(), sent: map[int64][]rules.Document{}}
	provider, tracing, err := tracedTo(t.Context(), s.traces, "parent")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	db := testenv.Mongo(t)
	watched, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)).SetMonitor(&event.CommandMonitor{Started: s.sends, Succeeded: s.saw}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, watched.Disconnect(context.WithoutCancel(t.Context()))) })
	locker, err := lockcore.New(watched.Database(db.Name()).Collection(lockCollection), lockcore.Config{TracerProvider: provider})
	require.NoError(t, err)
	plugin := newPlugin(t, worker.Options{Locker: locker})
	c, err := client.Dial(client.Options{HostPort: testenv.TemporalAddress(t), Interceptors: []interceptor.ClientInterceptor{tracing}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	askForNamespace(t, c)
	s.bundle = &bundle{client: c, locker: locker.Steps(), plugin: plugin, queue: testenv.TaskQueue(t), database: db.Name(), workflows: map[string]any{}, events: &events{}}
	return s
}

// write is a lock document as a write left it.
type write struct {
	at time.Time
	rules.Document
}

// sends keeps the documents of a swap.
func (s *scene) sends(_ context.Context, e *event.CommandStartedEvent) {
	var command struct {
		Documents []rules.Document `bson:"documents"`
		Updates   []struct {
			U rules.Document `bson:"u"`
		} `bson:"updates"`
	}
	if (e.CommandName != "insert" && e.CommandName != "update") || bson.Unmarshal(e.Command, &command) != nil {
		return // the scene's totals show that one is missing
	}
	for _, u := range command.Updates {
		command.Documents = append(command.Documents, u.U)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[e.RequestID] = slices.DeleteFunc(command.Documents, func(d rules.Document) bool { return d.Version.R == "" }) // extensions
}

// saw takes a swap as written if it was answered so.
func (s *scene) saw(_ context.Context, e *event.CommandSucceededEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, _ := e.Reply.Lookup("n").AsInt64OK()
	for _, d := range s.sent[e.RequestID][:min(int(n), len(s.sent[e.RequestID]))] {
		s.writes = append(s.writes, write{time.Now().Add(-e.Duration), d})
	}
	delete(s.sent, e.RequestID)
}

// stay is a hold or a wait, by the database's own record.
type stay struct {
	lockID   string
	fence    int64
	from, to time.Time
}

// recorded are the holds and the granted waits as the lock documents have them. A hold has ended when
// its lock ID is in the document no longer.
func (s *scene) recorded() (holds, waits []stay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := map[string]stay{}
	// The answers of two swaps may arrive in the other order.
	slices.SortStableFunc(s.writes, func(a, b write) int { return cmp.Compare(a.Version.N, b.Version.N) })
	for i := range s.writes {
		d := &s.writes[i]
		held := map[string]bool{}
		for _, e := range d.Entries {
			if e.Holds() {
				held[e.LockID] = true
				was, known := open[e.LockID]
				if e.CreatedAt != nil && !(known && was.from.Before(*e.CreatedAt)) { // a later step's entry has its own time
					open[e.LockID] = stay{e.LockID, e.FirstFence, *e.CreatedAt, time.Time{}}
				}
			}
			if e.Since == nil || e.ClaimedAt == nil || e.State == rules.StateClaimed {
				continue
			}
			w := stay{e.LockID, e.Fence, *e.Since, *e.ClaimedAt}
			if !slices.Contains(waits, w) {
				waits = append(waits, w)
			}
		}
		for lockID, hold := range open {
			if !held[lockID] {
				hold.to = d.at
				holds = append(holds, hold)
				delete(open, lockID)
			}
		}
	}
	return holds, waits
}

func (s *scene) report(t *testing.T) *contention.Report {
	t.Helper()
	spans, err := contention.Read(t.Context(), []string{s.traces}, nil)
	require.NoError(t, err)
	r, err := contention.Analyze(t.Context(), spans, contention.Options{})
	require.NoError(t, err)
	return r
}

func total(stays []stay) float64 {
	var sum time.Duration
	for _, s := range stays {
		sum += s.to.Sub(s.from)
	}
	return sum.Seconds()
}

// runLock is the lock ID of a run.
func runLock(run client.WorkflowRun) string {
	return wire.Run{Namespace: namespaceID, WorkflowID: run.GetID()}.LockID()
}

// timesApart is the relative difference allowed between times of spans and of documents: the span of a hold ends when its process has
// the answer, which on a busy machine takes long. A wait that is blamed on the wrong holder differs by half.
const timesApart = 0.3

// TestContention_KnownScene_IsReported plays a scene whose answers are known: A holds, B queues, then C queues; a second later A lets
// B in, which holds for a second, then C. So B waits for A, and C for A and for B. Each is a saga whose second step just ends.
func TestContention_KnownScene_IsReported(t *testing.T) {
	t.Parallel()
	s := setScene(t)
	ids := s.playThreeSagas(t)
	var holds, waits []stay
	var r *contention.Report
	require.Eventually(t, func() bool {
		holds, waits = s.recorded()
		r = s.report(t)
		return len(holds) == 3 && len(r.Holds) == 3 && r.Holds[2].Outcome == telemetry.OutcomeReleased
	}, 30*time.Second, 50*time.Millisecond, "the release of C's hold, which follows the end of its run")
	require.Len(t, r.Waits, 2)
	require.Len(t, waits, 2)
	require.InEpsilon(t, total(holds), r.Totals.Hold.Total, timesApart)
	require.InEpsilon(t, total(waits), r.Totals.Wait.Total, timesApart)
	require.Equal(t, []string{account.Name}, []string{r.Resources[0].Name})
	for i, h := range r.Holds { // by their starts: A, B, C
		require.Equal(t, ids[i], h.LockID)
		require.Equal(t, telemetry.OutcomeReleased, h.Outcome)
		require.InEpsilon(t, holds[i].to.Sub(holds[i].from).Seconds(), h.End.Sub(h.Start).Seconds(), timesApart)
		require.Equal(t, holds[i].fence, h.Fence)
		require.Equal(t, []string{"Charge", "Ship"}, []string{h.Steps[0].Name, h.Steps[1].Name})
	}
	for i, w := range r.Waits {
		require.Equal(t, ids[i+1], w.LockID)
		require.InEpsilon(t, waits[i].to.Sub(waits[i].from).Seconds(), w.End.Sub(w.Start).Seconds(), timesApart)
		require.Equal(t, "Charge", w.Step)
		require.Equal(t, i+1, w.Hold)
		// B waited for A, C for A and then for B.
		requireBlockers(t, r, i, [][]int{{0}, {0, 1}}[i])
	}
}

// playThreeSagas returns the lock IDs of A, B and C.
func (s *scene) playThreeSagas(t *testing.T) (ids []string) {
	t.Helper()
	s.saga("saga", func(ctx workflow.Context, _ *workflows.Saga) error {
		ctx = workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, Scope: workflows.ScopeSaga})
		if err := do(ctx, "Charge"); err != nil {
			return err
		}
		return do(ctx, "Ship")
	})
	entered, queued := make(chan struct{}, 3), make(chan struct{})
	s.work(t, sdkworker.Options{}, map[string]any{
		"Charge": func(context.Context) error {
			entered <- struct{}{}
			<-queued
			<-time.After(time.Second) // the scene, and nothing waits for it
			return nil
		},
		"Ship": func(context.Context) error { return nil },
	})
	a := s.start(t, "saga")
	<-entered
	b := s.start(t, "saga")
	s.untilParked(t, b)
	c := s.start(t, "saga")
	s.untilParked(t, c)
	close(queued)
	for _, run := range []client.WorkflowRun{a, b, c} {
		s.succeed(t, run)
		ids = append(ids, runLock(run))
	}
	return ids
}

// requireBlockers compares the blockers of a wait with the holds that were in its way, and the holds with the wait.
func requireBlockers(t *testing.T, r *contention.Report, wait int, want []int) {
	t.Helper()
	w := r.Waits[wait]
	var blockers []int
	explained := 0.0
	for _, b := range w.Blockers {
		blockers = append(blockers, b.Hold)
		explained += b.To - b.From
		hold := r.Holds[b.Hold]
		require.Equal(t, hold.LockID, b.LockID)
		require.Equal(t, hold.Workflow, b.Workflow)
		require.Contains(t, hold.Blocks, wait, "and back")
		require.NotEmpty(t, b.Trace)
		require.NotEmpty(t, b.Span)
		require.Contains(t, []string{"Charge", "Ship"}, b.Step)
	}
	require.Equal(t, want, blockers)
	last := w.Blockers[len(w.Blockers)-1]
	require.True(t, last.Last && last.Named, "the one whose end let it in is named by the wait's own span")
	// What is left is between one's release and the next one's first step: it had the lock, and had not taken it up.
	require.InDelta(t, w.Unexplained, w.HandOver, 0.001)
	require.InEpsilon(t, w.End.Sub(w.Start).Seconds(), explained+w.HandOver, 0.05)
}

// TestContention_BlockerInAnotherProcess_IsLinked: the blocker's process is killed, and the span of its hold is finished by
// the process in which the other waits.
func TestContention_BlockerInAnotherProcess_IsLinked(t *testing.T) {
	t.Parallel()
	s := setScene(t)
	s.workflow("killed", func(ctx workflow.Context) error {
		return do(workflows.WithLocks(ctx, workflows.Locks{Resources: []lockcore.Resource{account}, TTL: 4 * time.Second}), "Step")
	})
	s.workflow("other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Other") })
	s.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	cmd, out := startChild(t, s.bundle, fmt.Sprintf("%s=%s", childTraces, s.traces))
	killed := s.start(t, "killed")
	untilLine(t, out, enteredLine)
	s.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{"Other": func(context.Context) error { return nil }})
	other := s.start(t, "other")
	s.untilParked(t, other)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	s.succeed(t, other)
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), killed.GetID(), killed.GetRunID(), "the test is over"))

	r := s.report(t)
	require.Len(t, r.Waits, 1)
	require.Len(t, r.Waits[0].Blockers, 1)
	b := r.Waits[0].Blockers[0]
	require.GreaterOrEqual(t, b.Hold, 0, "the hold's span was read")
	hold := r.Holds[b.Hold]
	require.Equal(t, runLock(killed)+"/1%2FStep", hold.LockID)
	require.Equal(t, hold.Fence, b.Fence)
	require.True(t, b.Named && b.Last)
	require.Equal(t, "Step", b.Step)
	require.Equal(t, telemetry.OutcomeExpired, hold.Outcome)
	require.Equal(t, runLock(other)+"/1%2FOther", hold.EndedBy)
	require.Equal(t, []int{0}, hold.Blocks, "and back")
	require.Len(t, hold.Steps, 1)
	require.Equal(t, "Step", hold.Steps[0].Name)

	// The two spans were written by different processes, and the wait links to the step's trace.
	files, err := filepath.Glob(filepath.Join(s.traces, "child-*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	child, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(child), b.Trace)
	require.NotContains(t, string(child), `"name":"`+telemetry.SpanHold+`"`)
	require.Equal(t, b.Trace, hold.Trace)
}

// TestContention_StepOfClosedRun_IsTheBlocker: a workflow is terminated while its step runs, the janitor releases its lock, and
// the step, which may still trust its lease, keeps the next one out until it returns.
func TestContention_StepOfClosedRun_IsTheBlocker(t *testing.T) {
	t.Parallel()
	s := setScene(t)
	leftBehind(s.bundle)
	entered, returns := make(chan struct{}, 2), make(chan struct{})
	s.work(t, sdkworker.Options{}, map[string]any{"Note": func(context.Context) error {
		entered <- struct{}{}
		<-returns
		return nil
	}})
	holder := s.start(t, "Hold")
	<-entered
	next := s.start(t, "Hold")
	s.untilParked(t, next)
	s.terminate(t, holder)
	require.Equal(t, 1, s.round(t).Released)
	close(returns)
	<-entered
	s.terminate(t, next)
	require.Equal(t, 1, s.round(t).Released)

	r := s.report(t)
	require.Len(t, r.Waits, 1)
	require.Len(t, r.Waits[0].Blockers, 1)
	b := r.Waits[0].Blockers[0]
	require.True(t, b.Named && b.Last)
	require.Equal(t, runLock(holder), r.Holds[b.Hold].LockID)
	require.Equal(t, telemetry.OutcomeOrphaned, r.Holds[b.Hold].Outcome)
	require.NotEmpty(t, b.Span, "of the step")
	require.Greater(t, b.To, r.Holds[b.Hold].End.Sub(r.Waits[0].Start).Seconds(), "longer than the hold stood")
}

// blocked is a wait and the hold that is in its way, as a blocking tree shows them.
type blocked struct {
	workflow, resource, lockID string
	fence                      int64
}

// blockedIn lists the waits for holds in blocking trees. A waiter behind another waiter is left out:
// what is in its way may be gone before the other has it.
func blockedIn(nodes []*inspect.Node) (found []blocked) {
	for _, n := range nodes {
		for _, w := range n.Waiting {
			if n.Hold != nil && n.Hold.State == lockcore.StateHolding && w.Wait.Resource == n.Hold.Resource {
				found = append(found, blocked{w.Party.Workflow, w.Wait.Resource, n.Hold.LockID, n.Hold.FirstFence})
			}
		}
		found = append(found, blockedIn(n.Waiting)...)
	}
	return found
}

// sampleBlockers asks twice why a workflow waits, and records the time for what both answers contain. If both name one root blocker, the
// page must name it in between; then the result is true.
func sampleBlockers(t *testing.T, site inspect.Site, workflowID string, samples map[blocked]time.Time) bool {
	t.Helper()
	first, err := site.Why(t.Context(), workflowID)
	require.NoError(t, err)
	between := time.Now()
	shown := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/why?workflow="+url.QueryEscape(workflowID), http.NoBody)
	ui.Handler(ui.Options{Site: site}).ServeHTTP(shown, request) // a new one, which has listed nothing before
	second, err := site.Why(t.Context(), workflowID)
	require.NoError(t, err)
	later := blockedIn(second.Roots)
	for _, b := range blockedIn(first.Roots) {
		if slices.Contains(later, b) {
			samples[b] = between
		}
	}
	if len(first.Roots) != 1 || len(second.Roots) != 1 || first.Roots[0].Party != second.Roots[0].Party {
		return false
	}
	require.Contains(t, shown.Body.String(), first.Roots[0].Party.Workflow)
	return true
}

// TestWhy_SameBlockersAsPageAndContention samples the blocking trees of the workflows that wait, while sagas
// move between shelves. What two samples in a row show was so between them: the report on the traces
// must say so too, and the page must name the root blocker.
func TestWhy_SameBlockersAsPageAndContention(t *testing.T) {
	t.Parallel()
	s := setScene(t)
	const shelves, sagas = 4, 12
	s.saga("Move", func(ctx workflow.Context, _ *workflows.Saga) error {
		var i int
		if _, err := fmt.Sscanf(workflow.GetInfo(ctx).WorkflowExecution.ID, s.queue+"-%d", &i); err != nil {
			return err
		}
		first := i % (shelves - 1)
		for _, n := range []int{first, first + 1} { // in the same order, so that they cannot deadlock
			if err := do(workflows.Guard(ctx, lockcore.Exclusive(fmt.Sprintf("shelf/%d", n))), "Work"); err != nil {
				return err
			}
		}
		return nil
	})
	s.work(t, sdkworker.Options{}, map[string]any{"Work": func(ctx context.Context) error {
		<-time.After(200 * time.Millisecond) // the load, and nothing waits for it
		return nil
	}})
	site := inspect.Site{Locker: s.locker, Temporal: inspect.Temporal{Service: s.client.WorkflowService(), Namespace: "default", NamespaceID: namespaceID}}

	var runs []client.WorkflowRun
	for i := range sagas {
		run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: fmt.Sprintf("%s-%d", s.queue, i), TaskQueue: s.queue}, "Move")
		require.NoError(t, err)
		runs = append(runs, run)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, run := range runs {
			_ = run.Get(context.WithoutCancel(t.Context()), nil) // a victim of too many deadlocks ends otherwise
		}
	}()
	samples, named := map[blocked]time.Time{}, 0
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		for _, run := range runs {
			if sampleBlockers(t, site, run.GetID(), samples) {
				named++
			}
		}
	}
	require.NotEmpty(t, samples)
	require.NotZero(t, named)

	report := s.report(t)
	for b, at := range samples {
		is := func(w contention.Wait) bool {
			byHold := func(x contention.Blocker) bool { return x.LockID == b.lockID && x.Fence == b.fence }
			return w.Workflow == b.workflow && w.Resource == b.resource && !w.Start.After(at) && !w.End.Before(at) && slices.ContainsFunc(w.Blockers, byHold)
		}
		require.True(t, slices.ContainsFunc(report.Waits, is), "at %v: %+v", at, b)
	}
}
