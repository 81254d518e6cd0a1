package verify

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// clientVariable makes this test binary a client process.
const clientVariable = "LOCKSTEP_TEST_VERIFY_CLIENT"

func TestMain(m *testing.M) {
	switch os.Getenv(clientVariable) {
	case "":
		testenv.Main(m)
	case "silent":
		_, _ = io.Copy(io.Discard, os.Stdin)
	default:
		if err := RunClient(context.Background(), os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
	}
}

// settings returns the options of a run of some checks, on a database of the test.
func settings(t *testing.T, only ...string) Options {
	t.Helper()
	return Options{
		URI: testenv.MongoURI(t), Database: testenv.Mongo(t).Name(), Clients: 4, Seed: 7, Version: "v0", only: only, Err: os.Stderr,
		Client: harness.Command{Env: []string{clientVariable + "=1"}},
	}
}

func requireRemoved(t *testing.T, o Options) {
	t.Helper()
	names, err := testenv.Mongo(t).Client().Database(o.Database).ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestRun_WorkingDatabase_Holds(t *testing.T) {
	t.Parallel()
	o := settings(t, "histories", "queues", "expiry", "trust", "fences", "cuts")
	report, err := Run(t.Context(), o)
	require.NoError(t, err, "%+v", report)
	require.Equal(t, Held, report.Result)
	require.Len(t, report.Checks, len(o.only))
	for _, c := range report.Checks {
		require.Equal(t, Held, c.Result, c.Name)
		require.Positive(t, c.Count, c.Name)
	}
	require.Greater(t, report.Operations, int64(1000))
	require.Empty(t, report.Left)
	requireRemoved(t, o)
}

// Each check with clients finds a defect when it is made alone.
func TestRun_Controls_AreFoundByEachCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ check, control string }{
		{"histories", EarlyAnswer}, {"queues", LostCompare}, {"expiry", ClockJump}, {"trust", ClockJump}, {"trust", LostRenewals}, {"fences", ClockJump}, {"cuts", LostCompare},
	} {
		t.Run(c.check+" "+c.control, func(t *testing.T) {
			t.Parallel()
			o := settings(t, c.check)
			o.Control = c.control
			o.Duration = time.Minute // the defects are drawn: if the first seed shows none, another does
			report, err := Run(t.Context(), o)
			require.ErrorIs(t, err, ErrViolated, "%+v", report)
			require.Len(t, report.Checks, 1)
			require.Equal(t, Violated, report.Checks[0].Result)
			require.NotEmpty(t, report.Checks[0].Seen)
			require.NotEmpty(t, report.Checks[0].Guarantee)
			requireRemoved(t, o)
		})
	}
}

func TestScenarios_ClockJumps_AreViolated(t *testing.T) {
	t.Parallel()
	jumping := &clockJump{store.NewMemory(time.Now), &dice{rand: newCutter(1).rand}, 2 * time.Hour}
	found, err := (&run{store: jumping}).scenarios(t.Context(), 0)
	require.NoError(t, err)
	require.Contains(t, found.seen, `scenario "`)
}

// A database that does not answer is not a violation.
func TestScenarios_DatabaseFails_IsAnError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found, err := (&run{store: store.NewMemory(time.Now)}).scenarios(ctx, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, found.seen)
}

func TestRun_Interrupted_RemovesCollection(t *testing.T) {
	t.Parallel()
	cause := errors.New("a drill")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := settings(t, "scenarios", "histories")
	o.Progress = func(Check) { cancel(cause) }
	report, err := Run(ctx, o)
	require.ErrorIs(t, err, cause)
	require.Equal(t, Incomplete, report.Result)
	require.Empty(t, report.Left)
	requireRemoved(t, o)
}

// roundsOf returns a check that has these outcomes, round by round.
func roundsOf(outcomes ...outcome) *test {
	return &test{name: "rounds", unit: "rounds", clients: true, run: func(_ *run, _ context.Context, seed uint64) (outcome, error) {
		return outcomes[seed], nil
	}}
}

func TestCheck_RoundsDiffer_TheGravestAndTheHeldCount(t *testing.T) {
	t.Parallel()
	held, not, broken := outcome{note: "n"}, outcome{reason: "no answer"}, outcome{seen: "two holders"}
	for name, c := range map[string]struct {
		rounds       []outcome
		result, note string
	}{
		"held":                      {[]outcome{held, held}, Held, "n"},
		"never possible":            {[]outcome{not, not}, NotPossible, ""},
		"held, then not possible":   {[]outcome{held, not}, Held, "1 of 2 rounds were not possible: no answer"},
		"not possible, then held":   {[]outcome{not, held}, Held, "n; 1 of 2 rounds were not possible: no answer"},
		"violated, then possible":   {[]outcome{broken, held}, Violated, "n"},
		"not possible and violated": {[]outcome{not, broken}, Violated, ""},
	} {
		r := &run{report: &Report{}, undecided: map[string]undecided{}}
		for round := range c.rounds {
			r.report.Rounds++
			_, err := r.check(t.Context(), roundsOf(c.rounds...), uint64(round))
			require.NoError(t, err)
		}
		require.Equal(t, c.result, r.report.Checks[0].Result, name)
		require.Equal(t, c.note, r.report.Checks[0].Note, name)
		require.Equal(t, c.result == NotPossible, r.report.Checks[0].Reason != "", name)
	}
}

func TestNeverRenewed_SlowAnswers_ExplainIt(t *testing.T) {
	t.Parallel()
	require.Empty(t, neverRenewed(quick))
	require.Contains(t, neverRenewed(quick-1), "never renewed a lock with a TTL of 2s in time")
}

// A defect is reported even if the run was interrupted after it was seen.
func TestRun_InterruptedAfterAViolation_IsViolated(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := settings(t, "histories", "queues")
	o.Control = LostCompare
	o.Progress = func(c Check) {
		if c.Result == Violated {
			cancel()
		}
	}
	report, err := Run(ctx, o)
	require.ErrorIs(t, err, ErrViolated)
	require.Equal(t, Violated, report.Result)
	requireRemoved(t, o)
}

func TestRun_Duration_RepeatsWithNewSeeds(t *testing.T) {
	t.Parallel()
	o := settings(t, "trust", "fences", "indexes")
	o.Duration = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var made []string
	o.Progress = func(c Check) {
		if made = append(made, c.Name); len(made) == 5 {
			cancel()
		}
	}
	report, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"indexes", "trust", "fences", "trust", "fences"}, made, "what needs no clients is not repeated")
	require.Equal(t, 2*24, report.Checks[2].Count, "the fences of both rounds")
}

// The setup contains the URI, and with it a password.
func TestExchange_NoAnswer_DoesNotPrintThePassword(t *testing.T) {
	t.Parallel()
	silent, err := harness.Start(t.Context(), harness.Command{Name: "silent", Silent: true, Env: []string{clientVariable + "=silent"}})
	require.NoError(t, err)
	defer silent.Kill()
	_, err = (&process{Process: silent, number: 3}).exchange(t.Context(), setup{URI: "mongodb://user:secret@host/", Client: 3}, time.Millisecond)
	require.EqualError(t, err, "client process 3 has not answered the setup of client 3 within 1ms")
}

func TestOptions_OutOfBounds_AreRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Options){
		"--clients is 1: want 2 to 12":      func(o *Options) { o.Clients = 1 },
		"--duration is -1s":                 func(o *Options) { o.Duration = -time.Second },
		`--control is "x": want early`:      func(o *Options) { o.Control = "x" },
		"--control and --step-down exclude": func(o *Options) { o.Control, o.StepDown = ClockJump, true },
		// The connection is direct, so that the primary of a set of several members does not step down.
		"--step-down needs a replica set of": func(o *Options) { o.StepDown, o.URI = true, testenv.MongoByProxy(t, testenv.MongoPrimary(t), nil) },
	} {
		o := settings(t)
		change(&o)
		report, err := Run(t.Context(), o)
		require.ErrorIs(t, err, ErrUsage)
		require.ErrorContains(t, err, want)
		require.Nil(t, report)
	}
}

func TestCheckStepDown_ReplicaSet_IsAccepted(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkStepDown(Options{StepDown: true}, Server{Topology: replicaSet, Members: 3}))
	const direct = "mongodb://one:27017/?directConnection=true"
	require.ErrorIs(t, checkStepDown(Options{StepDown: true, URI: direct}, Server{Topology: replicaSet, Members: 3}), ErrUsage)
	for _, s := range []Server{{Topology: replicaSet, Members: 1}, {Topology: sharded}, {Topology: standalone}} {
		require.ErrorIs(t, checkStepDown(Options{StepDown: true}, s), ErrUsage)
		require.NoError(t, checkStepDown(Options{}, s))
	}
}

func TestIndexes_IndexMissing_IsViolated(t *testing.T) {
	t.Parallel()
	o := settings(t)
	coll := testenv.Mongo(t).Collection("locks")
	r := &run{o: o, coll: coll, store: store.New(coll)}
	require.NoError(t, r.store.Prepare(t.Context()))
	found, err := r.indexes(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, found.seen)
	require.Equal(t, 5, found.count)

	require.NoError(t, coll.Indexes().DropOne(t.Context(), "lockstep_attn"))
	found, err = r.indexes(t.Context(), 0)
	require.NoError(t, err)
	require.Contains(t, found.seen, "the search for waiters and kept holds does not use an index (lockstep_attn), among 20000 documents")

	require.NoError(t, coll.Indexes().DropOne(t.Context(), "lockstep_idle"))
	found, err = r.indexes(t.Context(), 0)
	require.NoError(t, err)
	require.Contains(t, found.seen, "the TTL index was made, and the server does not list it")
}

func TestJudgeHandovers_EarlyLateOrSmallerFence_IsViolated(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		h    handover
		want string
	}{
		"in time":  {handover{granted: end.Add(time.Second), answer: answer{OK: true, Fence: 8}}, ""},
		"early":    {handover{granted: end.Add(-time.Millisecond), answer: answer{OK: true, Fence: 8}}, "at the latest, and the lock of the killed process ended at 10:00:00.000"},
		"late":     {handover{granted: end.Add(mostLate + time.Second), answer: answer{OK: true, Fence: 8}}, "was granted the lock 21s after its end"},
		"never":    {handover{granted: end.Add(time.Second)}, "was not granted the lock of a killed process within 30s"},
		"no fence": {handover{granted: end.Add(time.Second), answer: answer{OK: true, Fence: 7}}, "fence 7 was granted after fence 7"},
	} {
		c.h.end, c.h.fence, c.h.resource, c.h.waiter = end, 7, "r", &process{number: 1}
		found, err := judgeHandovers([]*handover{&c.h})
		require.NoError(t, err, name)
		if c.want == "" {
			require.Empty(t, found.seen, name)
		} else {
			require.Contains(t, found.seen, c.want, name)
		}
	}
}

func TestJudgeHandovers_NoLockWasRenewed_IsNotPossible(t *testing.T) {
	t.Parallel()
	found, err := judgeHandovers([]*handover{{answer: answer{OK: true, Fence: 2}, fence: 1, waiter: &process{}}})
	require.NoError(t, err)
	require.Empty(t, found.seen)
	require.Contains(t, found.reason, "did not renew its locks in time")
}

func TestChosenPlan_RejectedPlans_DoNotCount(t *testing.T) {
	t.Parallel()
	plan := func(index string) bson.D {
		return bson.D{{Key: "stage", Value: "FETCH"}, {Key: "inputStage", Value: bson.D{{Key: "indexName", Value: index}}}}
	}
	planner := bson.D{{Key: "winningPlan", Value: plan("used")}, {Key: "rejectedPlans", Value: bson.A{plan("rejected")}}}
	for name, explanation := range map[string]bson.D{
		"one server": {{Key: "queryPlanner", Value: planner}},
		"shards":     {{Key: "queryPlanner", Value: bson.D{{Key: "winningPlan", Value: bson.D{{Key: "shards", Value: bson.A{planner}}}}}}},
	} {
		raw, err := bson.Marshal(explanation)
		require.NoError(t, err)
		require.Contains(t, chosenPlan(raw), "used", name)
		require.NotContains(t, chosenPlan(raw), "rejected", name)
	}
	raw, err := bson.Marshal(bson.D{{Key: "plan", Value: "Index Scan using other"}})
	require.NoError(t, err)
	require.Contains(t, chosenPlan(raw), "other")
}

func TestEnds_RunningPart_IsFound(t *testing.T) {
	t.Parallel()
	at := time.Now()
	loaded := store.Loaded{Docs: map[string]*rules.Document{"r": {Entries: []rules.Entry{
		{Caller: rules.Caller{LockID: "client-1"}, State: rules.StateClaimed, ExpiresAt: at.Add(time.Hour)}, {Caller: rules.Caller{LockID: "client-2"}, State: rules.StateRunning, ExpiresAt: at},
	}}}}
	require.Equal(t, at, ends(loaded, "r", 2))
	require.Zero(t, ends(loaded, "r", 1))
	require.Zero(t, ends(loaded, "other", 2))
}

func TestRemove_Fails_ReportsTheCollection(t *testing.T) {
	t.Parallel()
	c, err := mongo.Connect()
	require.NoError(t, err)
	require.NoError(t, c.Disconnect(t.Context()))
	r := &run{coll: c.Database("d").Collection("c"), patience: 10 * time.Millisecond, report: &Report{Server: Server{Collection: "d.c"}}}
	r.remove(t.Context())
	require.Equal(t, "d.c", r.report.Left)
	var out strings.Builder
	require.NoError(t, r.report.Print(&out))
	require.Contains(t, out.String(), "the collection d.c could not be removed: drop it")
}

func TestExplainRefusal_MissingRight_NamesTheRole(t *testing.T) {
	t.Parallel()
	require.NoError(t, explainRefusal("d", nil))
	other := errors.New("other")
	require.Equal(t, other, explainRefusal("d", other))
	err := explainRefusal("d", mongo.CommandError{Code: unauthorized, Message: "not authorized on d to execute command"})
	require.ErrorContains(t, err, `the user may not do in database "d" what verify needs there`)
	require.ErrorContains(t, err, "readWrite")
}

// fakeAdmin is a replica set whose primary changes after a few questions.
type fakeAdmin struct {
	asked    int
	electsAt int
	refuses  error
	commands []bson.D
}

func (f *fakeAdmin) run(_ context.Context, command bson.D) error {
	f.commands = append(f.commands, command)
	return f.refuses
}

func (f *fakeAdmin) hello(context.Context) (hello, error) {
	f.asked++
	switch {
	case f.asked == 1 || f.asked < f.electsAt-1:
		return hello{Primary: "a:1"}, nil
	case f.asked == f.electsAt-1:
		return hello{}, errors.New("no primary")
	}
	return hello{Primary: "b:1"}, nil
}

func TestStepDownPrimary_Elections_AreAwaited(t *testing.T) {
	t.Parallel()
	set := &fakeAdmin{electsAt: 4}
	note, err := stepDownPrimary(t.Context(), set)
	require.NoError(t, err)
	require.Contains(t, note, "a:1 stepped down, and b:1 was primary")
	require.Equal(t, []bson.D{{{Key: "replSetStepDown", Value: staysDown}, {Key: "secondaryCatchUpPeriodSecs", Value: 10}}}, set.commands)

	set = &fakeAdmin{electsAt: 4, refuses: mongo.CommandError{Labels: []string{"NetworkError"}}}
	_, err = stepDownPrimary(t.Context(), set)
	require.NoError(t, err, "a server may close the connection")

	_, err = stepDownPrimary(t.Context(), &fakeAdmin{refuses: mongo.CommandError{Code: unauthorized}})
	require.ErrorContains(t, err, "clusterManager")
	_, err = stepDownPrimary(t.Context(), &fakeAdmin{refuses: errors.New("no secondary has caught up")})
	require.ErrorContains(t, err, "make a:1 step down: no secondary has caught up")

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = stepDownPrimary(ctx, &fakeAdmin{electsAt: 1 << 30})
	require.ErrorContains(t, err, "no other member was primary")
}

func TestReport_Line_FitsATicket(t *testing.T) {
	t.Parallel()
	r := Report{
		Version: "v0.1.0", Started: time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC), Seed: 7, Operations: 12345, Result: Held,
		Server: Server{Product: "MongoDB", Version: "8.0.4", Topology: replicaSet, ReplicaSet: "rs0", Members: 3, Storage: "wiredTiger"},
		Checks: []Check{{Name: "histories", Result: Held, Count: 1010, Unit: "operations"}, {Name: "indexes", Result: NotPossible, Reason: "no explain"}},
	}
	require.Equal(t, "lockstep verify v0.1.0: HELD, 1 check, not possible: indexes, 12,345 operations, MongoDB 8.0.4 replica set of 3 (wiredTiger), 2026-11-26T10:00:00Z, seed 7", r.Line())
	r.Result, r.Checks[0].Result, r.Checks[0].Seen, r.Checks[0].Guarantee, r.Checks[0].Seed = Violated, Violated, "a\nb", "c", 9
	require.Contains(t, r.Line(), ": VIOLATED: histories, 1 check, ")
	var out strings.Builder
	require.NoError(t, r.Print(&out))
	require.Regexp(t, `(?m)^violated      histories           1,010 operations .*\n +seen +a\n +b\n +guarantee c\n +repeat    --seed 9\n`, out.String())
	require.Contains(t, out.String(), "no explain")
	require.True(t, strings.HasSuffix(out.String(), r.Line()+"\n"))
	r.Result, r.Error, r.Checks = Incomplete, "expiry: no answer", nil
	require.Contains(t, r.Line(), ": INCOMPLETE: expiry: no answer, 0 checks, ")
}
