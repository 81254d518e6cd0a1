package main

import (
	"fmt"
	"strings"
)

const sagaHeader = `# What finds defects of sagas

Each row is a defect that the Temporal side once had, put back on purpose by a change of its source. The last column names the seed of the
saga fuzzer, ` + "`internal/proof/sagafuzz`" + `, that notices it, and the check. A seed counts only if it passes without the change. Runs on real servers do not repeat
exactly, so another run may need another seed.

This page is written by the command below, with the addresses of the stack in the environment (` + "`make stack-env`" + `):

    go run ./internal/proof/mutants -sagas -seeds 50

| what was put back | what finds it |
| --- | --- |
`

// fuzzer is the package of the fuzzer of sagas.
const fuzzer = "./internal/proof/sagafuzz"

var sagaMutants = []mutant{
	{what: "a compensation runs although its step never ran", in: worker, tests: "TestCompensation_StepNeverGranted_IsNotUndone", check: "vain", edits: []edit{
		{workflows, "compensation.isVoid", "value", "$ && false"},
	}},
	{what: "a step releases what it has when another resource is busy", in: worker, tests: "TestScopeStep_KeptWhileWaiting_IsReleased/when_it_has_run", check: "history", edits: []edit{
		{interceptors, "mustWithdraw", "return 2 value", "guard.Scope == wire.ScopeStep"},
	}},
	{what: "a compensation does not wait for its step", in: worker, tests: "TestCompensation_StepStillRuns_WaitsForIt", check: "undo", edits: []edit{{rules, "state.cutOffAll", "|| 1", "true || $"}}},
	{what: "a step that is cancelled while it waits stays in the queue", in: worker, tests: "TestWait_Cancelled_LeavesNothing", check: "places", edits: []edit{
		{runstate, "Step.wait", "case 2 assign", "return wire.NewWaitCanceled(!t.ran)"},
	}},
	{what: "a saga does not verify its locks at its end", in: worker, tests: "TestLoss_BeforeTheEnd_IsReported", check: "isolation", edits: []edit{
		{activities, "lockActivities.Verify", "assign 6", "_ = u"},
	}},
	{what: "steps of scope step share the lock ID of their workflow", in: worker, tests: "TestScopeStep_StepsOfOneWorkflow_AreIndependent", check: "limit", edits: []edit{
		{wire, "Guard.Request", "assign 3", `within, holdTTL = "", 0`},
	}},
	{what: "a step that lost one lock stays in the queue of another", in: worker, tests: "TestGuard_OneOfTwoLost_LeavesTheOthersQueue", check: "places", edits: []edit{
		{interceptors, "mustWithdraw", "return 4 value", "false"},
	}},
}

// fuzz returns the first seed in which the fuzzer's check finds the mutant and that passes without it; "" if there is none.
func (m *mutant) fuzz(b *builds) (string, error) {
	sound, broken, err := b.of(fuzzer)
	if err != nil {
		return "", err
	}
	for seed := 1; seed <= *seeds; seed++ {
		play := func(binary string) (string, error) {
			out, err := execute(binary, ".", "-seed", fmt.Sprint(seed), "-runs", "1")
			return string(out), err
		}
		out, err := play(broken)
		if err == nil {
			continue
		}
		if !strings.Contains(out, "VIOLATION "+m.check+": ") {
			fmt.Printf("seed %d: no violation of this kind: %.300s\n", seed, out)
			continue
		}
		if _, err := play(sound); err == nil {
			return fmt.Sprintf("seed %d: %s", seed, m.check), nil
		}
	}
	return "", nil
}
