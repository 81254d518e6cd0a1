package main

import (
	"cmp"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/proof/mutate"
)

const header = `# What finds defects of the lock engine

Each row is a defect that the engine once had, or could have, put back on purpose by a change of its source. The last column lists what
finds it: a test, or a seed of the simulation in ` + "`internal/proof/simulation`" + ` with the kind of violation and how often the seed fails
in ten runs. A seed counts only if it passes without the change. Defects of the rules alone are in the mutants of package rules.

This page is written by

    go run ./internal/proof/mutants

| what was put back | what finds it |
| --- | --- |
`

// Packages, of defects and of tests.
const (
	lockcore     = "./lockcore"
	rules        = "./internal/engine/rules"
	store        = "./internal/engine/store"
	update       = "./internal/engine/update"
	runstate     = "./internal/runstate"
	wire         = "./internal/wire"
	currentrun   = "./internal/currentrun"
	activities   = "./activities"
	workflows    = "./workflows"
	interceptors = "./interceptors"
	worker       = "./worker"
	janitor      = "./internal/janitor"
	contention   = "./internal/cli/contention"
	inspect      = "./internal/cli/inspect"
	tables       = "./internal/cli/table"
)

// mutant is a defect, made by edits of the source.
type mutant struct {
	// what describes the defect, and names its row on the page.
	what  string
	edits []edit
	// tests, if not empty, is a pattern for go test -run of the tests that find it. They are in the package in, by default in package lockcore.
	tests, in string
	// simulated is set if a seed of the simulation finds it.
	simulated bool
	// check, if not empty, is the check of the fuzzer of sagas that finds it.
	check string
}

// all returns the mutants of all lists.
func all() []mutant { return slices.Concat(mutants, sagaMutants, productMutants) }

// packageOfTests returns the package of the tests that find the mutant.
func (m *mutant) packageOfTests() string { return cmp.Or(m.in, lockcore) }

// limit returns the time after which a test that does not end has found the mutant. Tests outside of the engine wait for servers.
func (m *mutant) limit() string {
	if m.in == "" {
		return "20s"
	}
	return "1m"
}

// edit changes a node of a declaration: package, declaration, path to the node, change.
type edit mutate.Edit

// changes returns the edits of the mutant.
func (m *mutant) changes() (all []mutate.Edit) {
	for _, e := range m.edits {
		all = append(all, mutate.Edit(e))
	}
	return all
}

var mutants = []mutant{
	{what: "an extension keeps the document's version", edits: []edit{{store, "Memory.update", "assign 3", "_ = r"}}, simulated: true},
	{what: "expiry is judged by a cached document", edits: []edit{{update, "Line.next", "if 3 && 2", "$1"}}, simulated: true},
	{what: "a cached document does not follow the policies of operators", edits: []edit{{update, "Lines.guess", "assign 2", "drop"}}, tests: "TestSetPolicy_LimitChanges_EveryProcessFollows", simulated: true},
	{what: "\"busy\" is answered from the cache", edits: []edit{{update, "Line.replyFromRead", "cond", "true"}, {update, "Line.replyFromRead", "for cond", "t.Call != nil"}}, simulated: true},
	{what: "a bulk continues after a conflict", edits: []edit{{store, "Memory.Swap", "return 3", "continue"}}, simulated: true},
	{what: "a conflict counts as proof that a lost swap was not applied", edits: []edit{
		{update, "Line.conflicted", "for", "l.writeOff(); for _, c := range l.calls { defer func() { c.unknown = false }() }; $"},
	}, simulated: true},
	{what: "the outcome of a lost swap is not settled", edits: []edit{{update, "Line.drop", "if cond", "c == nil"}}, simulated: true},
	{what: "\"superseded\" is answered without a swap", edits: []edit{{rules, "Result.refused", "|| 1", "$1 == Superseded || $"}}, simulated: true},
	{what: "a busy line ends a queued call", edits: []edit{{update, "Lines.doSeveral", "for arg 2", "true"}}, tests: "TestLines_DoWhile_LeavesBusyLinesAlone", in: update},
	{what: "an old read dates a later operation", edits: []edit{
		{update, "Line.Handle", "case 10 target 2", "drop"},
		{update, "Line.next", "assign", "drop"},
	}, tests: "TestLine_OldRead_DatesNoLaterCall", in: update},
	{what: "an undo that fails in an outage is not repeated", edits: []edit{{lockcore, "Locker.leaveAll", "if 3 value", "false"}}, tests: "TestAcquire_GivesUpInAnOutage_IsTakenBack"},
	{what: "a request does not retry a full queue", edits: []edit{{update, "Call.waitsAfter", "|| 2", "c == nil"}}, tests: "TestLine_QueueIsFullLater_CallStays", in: update},
	{what: "a document that a poll has read is written although another process has reserved it", edits: []edit{
		{update, "Line.next", "if 4 && 1", "l.fresh && $"},
	}, tests: "TestLine_OfferedDocumentIsReserved_Pauses", in: update},
	{what: "a lease is dated by a slow answer", edits: []edit{{update, "isShort", "value", "$1 >= 0"}}, tests: "TestServerClock_SlowAnswer_DatesNoLease", in: update},
	{what: "thousands of leases on one document are renewed by statements", edits: []edit{{lockcore, "renewedBesideLine", "value", "1_000_000"}}, tests: "TestRenew_ManyOfOneDocument_ShareASwap"},
	{what: "renewals ignore reservations, and swaps starve", edits: []edit{
		{store, "documentExtension.apply", "&& 1", "false"},
	}, tests: "TestLines_RenewalsOfOtherProcesses_LetSwapsSucceed", in: update},
	{what: "a process with a round trip above 250 ms makes no reservations", edits: []edit{
		{update, "serverClock.reservation", "if 2 cond", "$ || !isShort(c.sent, c.received)"},
	}, tests: "TestLines_FarProcess_GetsItsTurn|TestServerClock_Reservation_LastsFourRoundTrips", in: update},
	{what: "a reservation binds others for minutes after the server's clock was set back", edits: []edit{
		{rules, "Document.ReservedByOther", "&& 5", "drop"},
	}, tests: "TestReservedByOther_EndsTooLate_IsIgnored", in: rules},
	{what: "a document that cannot be written is retried without end", edits: []edit{{update, "Line.loaded", "assign", "l.sent, l.failures = nil, 0"}}, simulated: true},
	{what: "a deadlock is broken on the evidence of old reads", edits: []edit{
		{lockcore, "Steps.BreakDeadlocks", "for cond", "$ && err != nil"},
	}, tests: "TestBreakDeadlocks_EndedSinceTheReads_WithdrawsNobody"},
	{what: "a victim of a deadlock is told only by the process that withdrew it", edits: []edit{
		{lockcore, "wakeupsIn", "case cond", "false && $"},
		{lockcore, "Locker.withdraw", "return 2", "wakeup := wakeupOf(a.After, &op.Caller); wakeup.Run, wakeup.Cycle = w.Run, cycle; l.watch.notify([]Wakeup{wakeup}); $"},
	}, tests: "TestWatchFor_Deadlock_WakesTheVictim", simulated: true},
	{what: "a step that gives up does not wait for the write that may have granted its lock", edits: []edit{
		{lockcore, "Locker.enterInline", "if 3 && 2", "false"},
	}, tests: "TestEnter_GrantedWhileItGivesUp_Holds", simulated: true},
	{what: "a recheck accepts a read older than its request", edits: []edit{{lockcore, "Steps.Recheck", "|| 1", "d == nil || d != nil || $"}}, tests: "TestRecheck_ReadIsOlderThanTheRequest_IsBusy"},
	{what: "a lost answer about several resources loses the position", edits: []edit{{lockcore, "Locker.enterTogether", "assign 2", "$; calls[i].TakeBack = l.undoCall(ctx, &ops[i])"}}, simulated: true},
	{what: "in the deadlock search, a request that may join waits for the queue", edits: []edit{
		{lockcore, "waitGraph.addQueue", "&& 2", "!holds && $"},
		{lockcore, "waitGraph.addQueue", "|| 2", "queue == nil"},
	}, tests: "TestAcquire_SameLockIDHolds_JoinsPastTheQueue|TestWatchFor_SameLockIDHolds_WakesTheWaiterThatJoins"},
	{what: "until a hold has been observed, each hand-over is found by a usual poll", edits: []edit{
		{lockcore, "holdTimes.expect", "arg 2", "max($, time.Second)"},
	}, tests: "TestWatcher_NoHoldObserved_HandOversAreFast"},
	{what: "no watcher passes a dead head of the queue", edits: []edit{{lockcore, "watcher.poll", "&& 2", "$ && false"}}, tests: "TestQueue_DeadWaitersAhead_CostTheirClaims", simulated: true},
	{what: "a lease that a batch did not renew is not renewed alone", edits: []edit{
		{lockcore, "Locker.renewBatch", "assign 6", "apply(i, renewResult{leases[i], &LostError{Resource: leases[i].Resource, LockID: leases[i].LockID, Part: leases[i].Part}})"},
	}, tests: "TestKeeper_OneDocumentFails_OthersAreRenewed", simulated: true},
	{what: "a request that gives up ends a hold that another part has joined", edits: []edit{
		{rules, "TakeBack.Apply", "|| 2", "e.State == StateKept"},
	}, tests: "TestEnter_GivesUpHoldThatAnotherJoined_KeepsIt", simulated: true},
	{what: "a cancelled request keeps what it was granted", edits: []edit{{lockcore, "Locker.undo", "stmt 1", "drop"}, {lockcore, "Locker.undo", "stmt 2", "drop"}}, simulated: true},
	{what: "default orders come from the process's clock", edits: []edit{
		{lockcore, "Locker.complete", "assign value", "$1[:0]"},
		{lockcore, "Locker.complete", "assign value 2", "Order{Schedule: uint32(time.Now().Unix()), $1}"},
	}, tests: "TestTryAcquire_ClockBehindAnotherProcess_IsNotSuperseded"},
	{what: "a forced release ends a later hold too", edits: []edit{{rules, "Release.names", "&& 2", "drop"}}, tests: "TestRelease_ForcedAgain_EndsNothingGrantedSince", simulated: true},
	{what: "a forced release drains a holder that is known to be dead", edits: []edit{{rules, "Release.stopped", "|| 1", "drop"}}, tests: "TestRelease_ForcedAgain_EndsNothingGrantedSince"},
	{what: "a release that finds nothing reports a loss", edits: []edit{{lockcore, "Locker.releaseHold", "call 3", "true"}}, tests: "TestSessionRelease_HoldWasLost_ReturnsLostError"},
	{what: "an endless lease is renewed at the pace of others", edits: []edit{{lockcore, "Session.beginRenewal", ">= 2", "Forever"}}, tests: "TestKeeper_EndlessSession_IsRenewedRarely", simulated: true},
	{what: "a session without leases is polled without a pause", edits: []edit{{lockcore, "keeper.plan", "continue 2", "found.pause = 0; $"}}, tests: "TestNewSession_NoLeases_DoesNothing", simulated: true},
	{what: "a session does not report a loss after its context has ended", edits: []edit{
		{lockcore, "Session.Lost", "cond", "$ || context.Cause(s.ctx) != error($1)"},
	}, tests: "TestSession_LostAfterItsContextEnded_ReportsTheLoss", simulated: true},
	{what: "a session trusts an exclusive lease during its downgrade", edits: []edit{{lockcore, "Session.Downgrade", "call 2", "drop"}}, tests: "TestDowngrade_AnswerLost_TrustsSharedOnly", simulated: true},
	{what: "a transient error ends the wait of a queued request", edits: []edit{
		{lockcore, "waiting.await", "case 4 cond", "false"},
	}, tests: "TestAcquire_ErrorsWhileQueued_KeepThePosition", simulated: true},
	{what: "an upgrade is refused if the queue is full", edits: []edit{{rules, "state.enqueue", "&& 2", "drop"}}, tests: "TestUpgrade_QueueIsFull_Queues", in: rules},
	{what: "requests with the limit 1 are left out of the deadlock search", edits: []edit{{lockcore, "effective", "if 1 cond", "false"}}, tests: "TestDeadlock_Victim_Ends", simulated: true},
	{what: "a deadlock may contain a smaller one", edits: []edit{{lockcore, "waitGraph.minimalCycle", "cond", "$ && false"}}, tests: "TestDeadlocks_RandomSituations_AreMinimalAndEnd"},
	{what: "an owner that waits for itself is not in a deadlock", edits: []edit{{lockcore, "waitGraph.edges", "literal 2", "nil"}}, tests: "TestDeadlocks_RandomSituations_AreMinimalAndEnd"},
	{what: "a deadlock through several steps of one workflow is not found", edits: []edit{
		{lockcore, "waitGraph.edges", "if 2", `if to = slices.Clone(to); o.tie.owner == w.owner && o.tie.lockID != "" { continue }; $`},
	}, tests: "TestDeadlocks_RandomSituations_AreMinimalAndEnd"},
	{what: "a request waits for compatible requests ahead", edits: []edit{{lockcore, "waitNode.waitsFor", "return 2 && 3", "drop"}}, tests: "TestDeadlocks_Situations_NamesMinimalCycles"},
	{what: "a deadlock is confirmed by writes of cached documents", edits: []edit{{lockcore, "Locker.stillExists", "assign 2 value", "false"}}, tests: "TestBreakDeadlocks_Confirmation_ReadsTheDocuments"},
	{what: "a semaphore with the limit 0 has no limit", edits: []edit{{lockcore, "SharedLimit", "value", "0"}}, tests: "TestSharedLimit_Zero_IsRefused"},
	{what: "a lease replaced at its expiry is not checked again", edits: []edit{{lockcore, "keeper.plan", "case 3 stmt 2", "drop"}}, tests: "TestKeeper_LeaseReplacedWhenItExpires_IsCheckedAgain"},
	{what: "an earlier wait's search delays the next search", edits: []edit{
		{lockcore, "watcher.search", "assign 3", "w.searching, w.searchAt = false, time.Now().Add(5 * time.Second)"},
	}, tests: "TestWatcher_EarlierSearch_DoesNotDelayTheNext"},
	{what: "a forced release of an endless lease does not drain it", edits: []edit{{rules, "state.drain", "+ 2", "drop"}}, tests: "TestSession_EndlessLeaseForced_EndsInTime", simulated: true},
	{what: "leaving the queue ends the part that confirmed the claim", edits: []edit{
		{lockcore, "Steps.LeaveQueue", "literal 2 elem 3", "drop"},
	}, tests: "TestLeaveQueue_ClaimWasTakenUp_KeepsThePart", simulated: true},
	{what: "another call with the same order joins a running part", edits: []edit{
		{rules, "state.superseded", "stmt 4 value", "false && $1"},
		{rules, "state.grantedBefore", "stmt 3 && 2", "drop"},
	}, simulated: true},
	{what: "a step's busy error does not report since when it was not held", edits: []edit{{lockcore, "notHeldSince", "&& 3", "true"}}, tests: "TestEnter_Busy_ReportsSinceWhenItWasNotHeld"},
	{what: "a claim that no longer fits makes its waiter retry without a pause", edits: []edit{
		{rules, "state.grantOrQueue", "case 10 cond", "$ || (claim != nil && claim.Alive(s.now))"},
	}, tests: "TestAcquire_ClaimNoLongerFits_Queues", in: rules},
	{what: "a long hold is polled at the pace of short ones", edits: []edit{{lockcore, "watcher.evaluate", "if 4 call 5", "$1"}}, tests: "TestWatcher_LongHold_IsReadLessOften"},
	{what: "a resource is polled without a pause while a claim has lapsed", edits: []edit{
		{lockcore, "watcher.evaluate", "if 3 cond", "one.position == 0 || next.Position < one.position"},
	}, tests: "TestWatcher_ClaimHasLapsed_IsReadLessOften"},
	{what: "requests wait in the slot however long holds last", edits: []edit{
		{lockcore, "Locker.grantIsNear", "stmt 2 value", "wait > 0*pace.PositionWait"},
	}, tests: "TestEnter_LongHolds_DoesNotWait|TestEnter_ShortHolds_WaitsWhileItsGrantIsNear"},
	{what: "a request waits in the slot behind more than may wait", edits: []edit{{lockcore, "Locker.grantIsNear", "|| 2", "drop"}}, tests: "TestEnter_BehindMoreThanMayWait_DoesNotWait"},
	{what: "a resource is polled although its holder is in the same process", edits: []edit{{lockcore, "watcher.updateRow", "assign 3", "drop"}}, tests: "TestWatcher_HolderInTheSameProcess_ReadsRarely"},
	{what: "a kept hold is expected to end in the process of its step", edits: []edit{{lockcore, "watcher.updateRow", "for && 2", "drop"}}, tests: "TestWatcher_KeptHold_IsReadOften"},
	{what: "a request stops waiting in the slot although its position moves", edits: []edit{
		{lockcore, "watcher.evaluate", "if 3 target 2", "drop"},
	}, tests: "TestEnter_GrantIsLate_WaitsWhileThePositionMoves"},
	{what: "a request waits in the slot although its position does not move", edits: []edit{{lockcore, "watcher.evaluate", ">= 2", "100*$"}}, tests: "TestEnter_PositionDoesNotMove_StopsWaiting"},
	{what: "each resource of a request has a MaxWait of its own", edits: []edit{{lockcore, "Locker.enterInline", "assign 7", "_ = began"}}, tests: "TestEnter_MaxWait_IsSharedByAllResources"},
	{what: "leases expire while the request waits for its other resources", edits: []edit{{lockcore, "Locker.enter", "assign 5 arg 2", "10*$1"}}, tests: "TestEnter_MaxWait_IsSharedByAllResources"},
	{what: "each parked resource is read by a command of its own", edits: []edit{{lockcore, "watched.isDue", "value arg", "$ * 0"}}, tests: "TestWatchFor_ManyResources_AreReadTogether"},
	{what: "any number of requests waits in the slot", edits: []edit{{lockcore, "inline.begin", "cond", "$1 < 0"}}, tests: "TestLimitInlineWaits_MoreRequests_DoNotWait"},
	{what: "parked requests far from their grant are called up", edits: []edit{{lockcore, "watcher.earlyWakeups", "> 2", "1000*$"}}, tests: "TestOnWakeup_ShortHolds_CallsParkedRequestsEarly"},
	{what: "a run that takes over compares its orders with those of the run before", edits: []edit{
		{rules, "state.takeOver", "assign 9 target 4", "drop"},
	}, tests: "TestVerify_TakenOverHold_IsOlderThanEveryUse"},
	{what: "a run that a reset has made does not count what the run before has lost", edits: []edit{{rules, "Evidence.isLossSince", "&& 1", "$1"}}, tests: "TestVerify_RunBeforeLostTheHold_IsLost"},
	{what: "a verification accepts a hold that began after its use", edits: []edit{{rules, "Document.Keeps", "&& 2", "drop"}}, tests: "TestVerify_HoldWasAcquiredAgain_IsLost", simulated: true},
	{what: "a verification does not renew the hold", edits: []edit{{rules, "Verify.Apply", "stmt 5", "drop"}}, tests: "TestVerify_Held_IsRenewedAndNotReleased"},
	{what: "a verification releases the hold", edits: []edit{
		{rules, "Verify.Apply", "if 2", "$ else { s.endEntries(func(e *Entry) bool { return e.BelongsTo(op.LockID) && e.State == StateKept }) }"},
	}, tests: "TestVerify_Held_IsRenewedAndNotReleased", simulated: true},
	{what: "a bar returns while a part that it cut off may run", edits: []edit{{rules, "Raise.Apply", "if 3 cond", "op <"}}, tests: "TestRaise_RunningPart_IsCutOffAndWaitedFor", simulated: true},
	{what: "a bar does not cut off running parts", edits: []edit{{rules, "state.cutOffAll", "|| 1", "true || $"}}, tests: "TestRaise_RunningPart_IsCutOffAndWaitedFor", simulated: true},
	{what: "a bar does not match the sagas inside its saga", edits: []edit{{rules, "isInside", "|| 2", "drop"}}, tests: "TestRaise_SagaInside_IsBarred", simulated: true},
	{what: "the bars of a hold end with it", edits: []edit{{rules, "state.end", "stmt 3", "drop"}}, tests: "TestRaise_HoldIsEvicted_BarRemains"},
	{what: "each call of a bar draws a fence", edits: []edit{{rules, "Raise.Apply", "if 2 cond", "$ || true"}}, tests: "TestRaise_Repeated_DrawsNoFence"},
	{what: "a bar fences off running steps of the outer saga", edits: []edit{{rules, "state.drawFence", "if 3 cond", "$ || true"}}, tests: "TestUpdateFenced_CompensationAfterABar_BarsTheStep"},
	{what: "a saga that has committed after a loss never learns of it", edits: []edit{{rules, "Release.Apply", "stmt 2", "drop"}}, tests: "TestReleaseCommitted_HoldWasLost_IsReportedForADay"},
	{what: "a request takes its resources in the order given", edits: []edit{{lockcore, "Locker.complete", "func value", "0 * $"}}, simulated: true},
	{what: "an undo leaves one of several resources", edits: []edit{{lockcore, "Locker.enter", "if 4 call", "_ = first"}}, simulated: true},
	{what: "a failed command is retried without a pause", edits: []edit{
		{update, "Lines.pause", "assign value", "time.Duration(1+0*step.Failures) * time.Millisecond"},
		{lockcore, "waiting.await", "case 4 value", "time.Millisecond"},
	}, simulated: true},
}
