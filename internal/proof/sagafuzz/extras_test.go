package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

func asked(scope string) []Record {
	return record(Record{What: Asked, Workflow: w1.workflow, Run: w1.id, Scope: scope, Other: "at"})
}

func verified(scope string) []Record {
	return record(Record{What: Verified, Workflow: w1.workflow, Run: w1.id, Scope: scope, Other: "at"})
}

// A scope to which a loss was reported makes no claim. What Verify confirmed before that loss remains.
func TestCheck_ClaimBeforeGoodAnswerOfVerify_Remains(t *testing.T) {
	t.Parallel()
	mine := attempt("a", w1, step(2, "1.1", account), 1)
	other := attempt("b", w2, step(2, "", account), 2)
	lost := join(leaving("1.1", "lost"), undo("u", w1, step(2, "1.1", account), 3), returned("1.1", "lost"))
	lostLock := join(leaving("5", "lost"), returned("5", "lost"))
	reset := record(Record{What: Meddled, Workflow: w1.workflow, Run: "r0", Type: "reset", Other: w1.id})
	for name, c := range map[string]struct {
		log  []Record
		want []string
	}{
		"other step before the question":              {join(killed("p9"), mine, other, asked("1.1"), verified("1.1"), lost), []string{"isolation"}},
		"other step after the question":               {join(killed("p9"), mine, asked("1.1"), other, verified("1.1"), lost), nil},
		"no good answer":                              {join(killed("p9"), mine, other, asked("1.1"), lost), nil},
		"answer to another scope":                     {join(killed("p9"), mine, other, asked("4.1"), verified("4.1"), lost), nil},
		"run that a reset has created":                {join(reset, killed("p9"), mine, other, asked("1.1"), verified("1.1"), lost), nil},
		"other step before the question of a Lock":    {join(killed("p9"), locked(), other, asked("5"), verified("5"), lostLock), []string{"isolation"}},
		"other step after the question of a Lock":     {join(killed("p9"), locked(), asked("5"), other, verified("5"), lostLock), nil},
		"other step before the Lock that was checked": {join(killed("p9"), other, locked(), asked("5"), verified("5"), lostLock), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, checksOf(Check(twoSteps, c.log)))
		})
	}
}

func checksOf(violations []Violation) (names []string) {
	for _, v := range violations {
		names = append(names, v.Check)
	}
	return names
}

// A lock that is older than verifyAfter makes a commit ask, unless Verify has asked since.
func TestCommitsUnasked_VerifyWasRecent_IsTrue(t *testing.T) {
	t.Parallel()
	for _, recent := range []bool{true, false} {
		log := join(attempt("a", w1, step(2, "1.1", account), 1), asked("1.1"), verified("1.1"), leaving("1.1", ""))
		shift := 2 * verifyAfter.Nanoseconds()
		for i := range log {
			if log[i].What == Leaving || recent && (log[i].What == Asked || log[i].What == Verified) {
				log[i].At += shift
			}
		}
		s := Read(log)
		require.Equal(t, recent, s.commitsUnasked(s.byScope[[2]string{w1.id, "1.1"}]))
	}
}

func TestCheckUpdates_OutcomeDoesNotFitItsHandler_IsFound(t *testing.T) {
	t.Parallel()
	saga := Node{Kind: Saga, ID: 1, Children: []Node{{Kind: Step, ID: 2, Undo: "step"}}}
	plan := func(refuse bool) Plan {
		return Plan{Workflows: []Workflow{{ID: "w1", Updates: []Update{{Body: saga, Refuse: refuse}}}}}
	}
	updated := func(err string) []Record {
		return record(Record{What: Updated, Workflow: w1.workflow, Other: "0", Error: err})
	}
	good := join(attempt("a", w1, step(2, "1.1")), leaving("1.1", ""), returned("1.1", ""))
	failed := join(leaving("1.1", "planned"), returned("1.1", "planned"))
	terminated := record(Record{What: Meddled, Workflow: w1.workflow, Type: "terminate"})
	for name, c := range map[string]struct {
		plan Plan
		log  []Record
		want []string
	}{
		"completed":                       {plan(false), join(good, updated("")), nil},
		"failed":                          {plan(false), join(failed, updated("planned")), nil},
		"completed, and its saga failed":  {plan(false), join(failed, updated("")), []string{"updates"}},
		"completed, and its saga is open": {plan(false), join(attempt("a", w1, step(2, "1.1")), updated("")), []string{"updates"}},
		"completed in a terminated run":   {plan(false), join(terminated, updated("")), nil},
		"refused":                         {plan(true), join(updated("refused")), nil},
		"refused, and its step ran":       {plan(true), join(good, updated("refused")), []string{"updates"}},
		"refused, and another step ran":   {plan(true), join(attempt("a", w1, step(7, "6.1")), updated("refused")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, checksOf(Check(c.plan, c.log)))
		})
	}
}

func TestCheckIgnored_SagaCommitsAfterALoss_IsFound(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"", "lost"} {
		for _, kind := range []string{"lost", "planned"} {
			ignored := record(Record{What: Ignored, Workflow: w1.workflow, Run: w1.id, Scope: "1.1", Type: kind, Error: kind})
			s := Read(join(attempt("a", w1, step(2, "1.1", account), 1), ignored, leaving("1.1", ""), returned("1.1", outcome)))
			s.checkIgnored()
			require.Equal(t, kind == "lost" && outcome == "", len(s.violations) == 1)
		}
	}
}

func TestUnasked_AdmitsOnlyFailedConversions(t *testing.T) {
	t.Parallel()
	const of = `workflow "w", run r, event 9: `
	admitted := of + "WorkflowWorkerUnhandledFailure: cannot be read: " + errConverter.Error()
	other := []string{
		of + "WorkflowWorkerUnhandledFailure: a panic",
		of + "NonDeterministicError: " + errConverter.Error(),
		of + "WorkflowWorkerUnhandledFailure: [TMPRL1100] " + errConverter.Error(),
	}
	failed := append([]string{admitted}, other...)
	require.Equal(t, other, unasked(Plan{FailsOneIn: 100}, failed))
	require.Equal(t, failed, unasked(Plan{}, failed))
	require.Empty(t, unasked(Plan{}, []string{of + "WorkflowWorkerUnhandledFailure: history_events: premature end of stream, expectedLastEventID=7"}))
}

func TestMayFailUnread_OnlyByThePanicThatNamesIt(t *testing.T) {
	t.Parallel()
	require.True(t, mayFailUnread(nil))
	require.True(t, mayFailUnread(errors.New("lockstep: the details of a failure of type lockstep.Parked cannot be read: sealed")))
	require.False(t, mayFailUnread(errors.New("[TMPRL1100] nondeterministic workflow")))
	require.False(t, mayFailUnread(errors.New("[TMPRL1100] after what cannot be read")))
	require.False(t, mayFailUnread(errors.New("another panic")))
}

func TestCheck_FailedConversion_ExplainsAFailure(t *testing.T) {
	t.Parallel()
	log := join(scopeRecord(Leaving, "1.1", ""), scopeRecord(Returned, "1.1", ""))
	for i := range log {
		log[i].Type, log[i].Error = "wrapError", "unable to decode: "+errConverter.Error()
	}
	plan := twoSteps
	require.Len(t, Check(plan, log), 1)
	plan.FailsOneIn = 100
	require.Empty(t, Check(plan, log))
}

// A run ends the sagas of the update handlers that it does not await.
func TestCheck_HandlerEndsWithItsRun_IsExplained(t *testing.T) {
	t.Parallel()
	ended := leaving("1.1", wire.FailureEnded)
	require.Empty(t, Check(twoSteps, join(leaving(rootScope, ""), ended)))
	require.Len(t, Check(twoSteps, join(ended, leaving(rootScope, ""))), 1)
}

func TestConverter_SealsAllButArgumentsOfWorkflowsSignalsAndUpdates(t *testing.T) {
	t.Parallel()
	dc, plain := newConverter(nil), converter.GetDefaultDataConverter()
	payload, err := dc.ToPayload(Call{Instance: "1.1"})
	require.NoError(t, err)
	var call Call
	require.Error(t, plain.FromPayload(payload, &call))
	require.NoError(t, dc.FromPayload(payload, &call))
	require.Equal(t, "1.1", call.Instance)

	payload, err = dc.ToPayload(nil)
	require.NoError(t, err)
	var nothing *Call
	require.NoError(t, dc.FromPayload(payload, &nothing))
	require.Nil(t, nothing)

	raw, err := plain.ToPayload(Call{Instance: "raw"})
	require.NoError(t, err)
	payloads, err := dc.ToPayloads(converter.NewRawValue(raw), Input{Again: 3}, "signal", Update{Refuse: true})
	require.NoError(t, err)
	var (
		back   converter.RawValue
		input  Input
		signal string
		update Update
	)
	require.NoError(t, dc.FromPayloads(payloads, &back, &input, &signal, &update))
	require.Equal(t, raw.GetData(), back.Payload().GetData())
	require.NoError(t, plain.FromPayload(payloads.GetPayloads()[1], &input))
	require.NoError(t, plain.FromPayload(payloads.GetPayloads()[2], &signal))
	require.NoError(t, plain.FromPayload(payloads.GetPayloads()[3], &update))
	require.Equal(t, 3, input.Again)

	begun := make(chan struct{})
	fails := newConverter(failing(1, begun))
	_, err = fails.ToPayload(call)
	require.NoError(t, err)
	close(begun)
	_, err = fails.ToPayloads(input, signal, update)
	require.NoError(t, err)
	_, err = fails.ToPayload(call)
	require.ErrorIs(t, err, errConverter)
	for range succeedAfter {
		require.NoError(t, fails.FromPayload(raw, &call))
	}
	require.ErrorIs(t, fails.FromPayload(raw, &call), errConverter)
}

func TestSlowness_DelaysThePlannedProcessesInThePlannedTimes(t *testing.T) {
	t.Parallel()
	dir, began := t.TempDir(), time.Now()
	plan := Plan{Slow: []SlowTime{{At: time.Second, For: time.Second, Delay: 3 * time.Second, Process: 1}}}
	require.Nil(t, newSlowness(plan, dir, "p2-7").monitor())
	s := newSlowness(plan, dir, "p1-9")
	require.NotNil(t, s.monitor())
	during := began.Add(1500 * time.Millisecond)
	require.Zero(t, s.delay(during, false), "the run has not begun")
	require.NoError(t, os.WriteFile(filepath.Join(dir, beganFile), []byte(strconv.FormatInt(began.UnixNano(), 10)), 0o600))
	require.Equal(t, 3*time.Second, s.delay(during, false))
	require.Zero(t, s.delay(during, true))
	require.Zero(t, s.delay(began, false))
	require.Zero(t, s.delay(began.Add(2*time.Second), false))
}

// Some plans have each of the additions, and none takes a semaphore under a rule.
func TestNewPlan_Additions_Occur(t *testing.T) {
	t.Parallel()
	var slow, codecs, owners, updates, refused int
	kinds := map[Kind]int{}
	for seed := range uint64(50) {
		plan := NewPlan(seed)
		slow += len(plan.Slow)
		if plan.Codec {
			codecs++
		}
		for i := range plan.Workflows {
			w := &plan.Workflows[i]
			ids := map[int]bool{}
			count := func(n *Node) {
				kinds[n.Kind]++
				require.False(t, ids[n.ID], "seed %d: %s: the ID %d is used twice", seed, w.ID, n.ID)
				ids[n.ID] = true
			}
			w.Input.Body.each(count)
			for n := range w.Updates {
				w.Updates[n].Body.each(count)
				if w.Updates[n].Refuse {
					refused++
				}
			}
			updates += len(w.Updates)
			owners += len(w.Input.Owner)
		}
	}
	for name, n := range map[string]int{
		"slow times": slow, "codecs": codecs, "owners": owners, "updates": updates, "refused updates": refused, "questions": kinds[Verify],
	} {
		require.Positive(t, n, name)
	}
}
