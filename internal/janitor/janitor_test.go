package janitor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// world is what a test in virtual time has: a Locker on an engine in memory, and the answers about
// runs.
type world struct {
	*lockcore.Locker
	mu      sync.Mutex
	answers map[string]answer // by workflow ID and run
	err     error
	// before, unless nil, is called before each answer.
	before  func()
	asked   []string
	at      []time.Time
	wakes   []lockcore.Turn
	results []Result
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l, err := lockcore.NewOn(lockcoretest.NewEngine(time.Now), lockcore.Config{})
	require.NoError(t, err)
	w := &world{Locker: l, answers: map[string]answer{}}
	l.OnTurn(func(turn lockcore.Turn) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wakes = append(w.wakes, turn)
	})
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return w
}

func (w *world) ask(_ context.Context, workflowID, run string) (answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.before != nil {
		w.before()
	}
	w.asked, w.at = append(w.asked, workflowID+"/"+run), append(w.at, time.Now())
	if w.err != nil {
		return answer{}, w.err
	}
	return w.answers[workflowID+"/"+run], nil
}

func (w *world) is(run string, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[run] = a
}

func (w *world) options() Options {
	return Options{
		Locker: w.Locker, Temporal: refusing{}, Namespace: "name", NamespaceID: "ns", Logger: logger(),
		OnRound: func(r Result) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.results = append(w.results, r)
		},
	}
}

func (w *world) janitor(t *testing.T, changes ...func(*Options)) *Janitor {
	t.Helper()
	o := w.options()
	for _, change := range changes {
		change(&o)
	}
	j, err := New(o)
	require.NoError(t, err)
	j.asker = w
	return j
}

func (w *world) round(t *testing.T, j *Janitor) Result {
	t.Helper()
	result, err := j.Round(t.Context())
	require.NoError(t, err)
	return result
}

// keeps has a run keep a resource, as between two steps of a saga.
func (w *world) keeps(t *testing.T, lockID, run, resource string, holdTTL time.Duration) {
	t.Helper()
	leases, err := w.Enter(t.Context(), request(lockID, run, resource, holdTTL), false)
	require.NoError(t, err)
	require.NoError(t, w.Leave(t.Context(), leases...))
}

// waits has a run wait for a resource without a process.
func (w *world) waits(t *testing.T, lockID, run, resource string) {
	t.Helper()
	_, err := w.Enter(t.Context(), request(lockID, run, resource, time.Hour), true)
	require.ErrorIs(t, err, lockcore.ErrBusy)
}

func request(lockID, run, resource string, holdTTL time.Duration) lockcore.Request {
	return lockcore.Request{
		LockID: lockID, Run: run, Part: run + "/1", Order: lockcore.Order{Schedule: 1, Attempt: 1}, Keep: true, HoldTTL: holdTTL, TTL: min(holdTTL, time.Minute),
		Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
	}
}

// on lists what stands on a resource, as lock ID and state.
func (w *world) on(t *testing.T, resource string) (found []string) {
	t.Helper()
	for s, err := range w.Status(t.Context(), lockcore.Filter{Resource: resource}) {
		require.NoError(t, err)
		if s.ExpiresIn > 0 {
			found = append(found, s.LockID+" "+string(s.State))
		}
	}
	return found
}

// rounds are the results so far.
func (w *world) rounds() []Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.results)
}

// run runs a janitor until the returned function has ended it.
func run(t *testing.T, j *Janitor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func logger() sdklog.Logger { return sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)) }

// refusing is a Temporal that refuses every question.
type refusing struct{}

func (refusing) DescribeWorkflowExecution(
	context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewPermissionDenied("no", "")
}

// TestOneOfTwoJanitorsWorks, and the other when the first has ended.
func TestOneOfTwoJanitorsWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.keeps(t, "ns/w", "r", "r", lockcore.Forever)
		first := run(t, w.janitor(t))
		synctest.Wait()
		second := run(t, w.janitor(t))
		elapse(10*time.Minute + time.Second)
		require.Len(t, w.rounds(), 11)
		first()
		require.Empty(t, w.on(t, Office("ns")), "the office is given up")
		elapse(10 * time.Minute)
		require.Len(t, w.rounds(), 21)
		second()
		elapse(10 * time.Minute)
		require.Len(t, w.rounds(), 21)
	})
}

// TestADeadJanitorIsReplaced when its lock has expired.
func TestADeadJanitorIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.janitor(t)
		_, err := w.Enter(t.Context(), lockcore.Request{LockID: "%janitor/dead", Resources: []lockcore.Resource{lockcore.Exclusive(Office("ns"))}}, false)
		require.NoError(t, err)
		defer run(t, j)()
		elapse(59 * time.Second)
		require.Empty(t, w.rounds())
		elapse(2 * time.Second)
		require.Len(t, w.rounds(), 1)
	})
}

// TestAnOpenRunsHoldStands although it is no longer than two intervals, and as long as a janitor
// works.
func TestAnOpenRunsHoldStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.is("w/r", answer{verdict: open})
		stop := run(t, w.janitor(t))
		for i := range 10 { // at any moment between two rounds
			w.keeps(t, "ns/w", "r", fmt.Sprint(i), 2*time.Minute)
			elapse(7 * time.Second)
		}
		w.keeps(t, "ns/w", "r", "an hour", time.Hour)
		for range 120 {
			elapse(time.Minute)
			for i := range 10 {
				require.Equal(t, []string{"ns/w holding"}, w.on(t, fmt.Sprint(i)))
			}
			require.Equal(t, []string{"ns/w holding"}, w.on(t, "an hour"))
		}
		extended := 0
		for _, r := range w.rounds() {
			extended += r.Extended
		}
		require.InDelta(t, 10*120+4, extended, 20, "an hour's hold is extended each half hour")
		stop()
		elapse(time.Hour)
		require.Empty(t, w.on(t, "0"))
	})
}

// TestTheHeadOfAQueueIsWokenWhoeverHasDied: the holder and the process that looked after the queue.
func TestTheHeadOfAQueueIsWokenWhoeverHasDied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dies := request("dead", "", "r", 0)
		dies.Keep = false
		_, err := w.Enter(t.Context(), dies, false)
		require.NoError(t, err)
		w.waits(t, "ns/w", "r", "r")
		w.is("w/r", answer{verdict: open})
		elapse(time.Minute)
		require.Equal(t, []string{"ns/w waiting"}, w.on(t, "r"), "nobody has looked at the queue")
		defer run(t, w.janitor(t))()
		elapse(time.Second)
		require.Equal(t, []string{"ns/w claimed"}, w.on(t, "r"))
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Contains(t, w.wakes, lockcore.Turn{Resource: "r", LockID: "ns/w", Run: "r", Part: "r/1", Order: lockcore.Order{Schedule: 1, Attempt: 1}})
	})
}

// TestAJanitorThatTemporalRefusesGivesItsOfficeUp, says so once, and lets one with other
// credentials work.
func TestAJanitorThatTemporalRefusesGivesItsOfficeUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.keeps(t, "ns/w", "r", "r", lockcore.Forever)
		var warnings lines
		j, err := New(w.options())
		require.NoError(t, err)
		j.Logger = sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(&warnings, nil)))
		defer run(t, j)()
		synctest.Wait()
		require.Len(t, w.rounds(), 1)
		require.Empty(t, w.on(t, Office("ns")), "the office is given up")
		elapse(9 * time.Minute)
		require.Len(t, w.rounds(), 1, "it does not stand for office again at once")
		elapse(2 * time.Hour)
		require.Greater(t, len(w.rounds()), 10, "it stands for office again")
		require.Equal(t, 1, warnings.count("gives its office up"), warnings.text)
		require.Equal(t, []string{"ns/w holding"}, w.on(t, "r"))

		allowed := w.janitor(t)
		w.mu.Lock()
		w.results = nil
		w.mu.Unlock()
		defer run(t, allowed)()
		elapse(time.Hour)
		require.Greater(t, len(w.rounds()), 55, "one that is allowed to works")
	})
}

// lines is a log that is written to a text.
type lines struct {
	mu   sync.Mutex
	text string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(p)
	return len(p), nil
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text, text)
}

// TestAJanitorEndsWithItsLocker.
func TestAJanitorEndsWithItsLocker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ended := make(chan struct{})
		j := w.janitor(t)
		go func() {
			defer close(ended)
			j.Run(t.Context())
		}()
		synctest.Wait()
		require.NoError(t, w.Close(t.Context()))
		<-ended
	})
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for field, change := range map[string]func(*Options){
			"Locker":             func(o *Options) { o.Locker = nil },
			"Temporal":           func(o *Options) { o.Temporal = nil },
			"Logger":             func(o *Options) { o.Logger = nil },
			"Namespace":          func(o *Options) { o.Namespace = "" },
			"NamespaceID":        func(o *Options) { o.NamespaceID = "" },
			"Interval":           func(o *Options) { o.Interval = time.Millisecond },
			"QuestionsPerSecond": func(o *Options) { o.QuestionsPerSecond = -1 },
		} {
			o := w.options()
			change(&o)
			_, err := New(o)
			var invalid *lockcore.InvalidError
			require.ErrorAs(t, err, &invalid, field)
			require.Equal(t, "janitor.Options."+field, invalid.Field)
		}
	})
}

// elapse lets virtual time go by.
func elapse(d time.Duration) { <-time.After(d) }

// handsOver has a run leave what it keeps to the run that continues it.
func (w *world) handsOver(t *testing.T, lockID, run, resource string) {
	t.Helper()
	_, err := w.Extend(t.Context(), lockID, run, resource, true)
	require.NoError(t, err)
}
