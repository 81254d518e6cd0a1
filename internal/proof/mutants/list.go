package main

import (
	"cmp"
	"slices"
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

const engineTests = "./lockcore/party"

// mutant is a defect, made by edits of the source.
type mutant struct {
	// what describes the defect, and names its row on the page.
	what  string
	edits []edit
	// tests, if not empty, is a pattern for go test -run of the tests that find it. They are in the package in, by default in package party.
	tests, in string
	// simulated is set if a seed of the simulation finds it.
	simulated bool
	// check, if not empty, is the check of the fuzzer of sagas that finds it.
	check string
}

// all returns the mutants of all lists.
func all() []mutant { return slices.Concat(mutants, sagaMutants, productMutants) }

// packageOfTests returns the package of the tests that find the mutant.
func (m *mutant) packageOfTests() string { return cmp.Or(m.in, engineTests) }

// limit returns the time after which a test that does not end has found the mutant. Tests outside of the engine wait for servers.
func (m *mutant) limit() string {
	if m.in == "" {
		return "20s"
	}
	return "1m"
}

// edit replaces a text that must occur once in a file.
type edit struct{ file, old, new string }

var mutants = []mutant{
	{what: "an extension keeps the document's version", edits: []edit{
		{"internal/engine/store/memory.go", "\td.Version = rules.Version{N: d.Version.N + 1, R: r}\n", "\t_ = r\n"},
	}, simulated: true},
	{what: "expiry is judged by a cached document", edits: []edit{
		{"internal/engine/update/line.go", "(guess.At.IsZero() || l.doc.ExpiresBy(guess.At) || l.isOld(guess.At))", "guess.At.IsZero()"},
	}, simulated: true},
	{what: "\"busy\" is answered from the cache", edits: []edit{
		{"internal/engine/update/line.go", "\tvar step Step\n\tif l.fresh {", "\tvar step Step\n\tif true {"},
		{"internal/engine/update/line.go", "t.Call.arrived < l.read", "t.Call != nil"},
	}, simulated: true},
	{what: "a bulk continues after a conflict", edits: []edit{
		{"internal/engine/store/memory.go", "stored.version != s.Prev {\n\t\t\treturn i, nil", "stored.version != s.Prev {\n\t\t\tcontinue"},
	}, simulated: true},
	{what: "a conflict counts as proof that a lost swap was not applied", edits: []edit{
		{"internal/engine/update/line.go", "func (l *Line) Conflicted() {\n", "func (l *Line) Conflicted() {\n\tl.WriteOff()\n\tfor _, c := range l.calls {\n\t\tdefer func() { c.unknown = false }()\n\t}\n"},
	}, simulated: true},
	{what: "the outcome of a lost swap is not settled", edits: []edit{
		{"internal/engine/update/line.go", "func (l *Line) takeBack(c *Call) {\n", "func (l *Line) takeBack(c *Call) {\n\tif c != nil {\n\t\treturn\n\t}\n"},
	}, simulated: true},
	{what: "\"superseded\" is answered without a swap", edits: []edit{
		{"lockcore/rules/settle.go", "r.ReadOnly = (r.Outcome == Busy", "r.ReadOnly = (r.Outcome == Superseded || r.Outcome == Busy"},
	}, simulated: true},
	{what: "a busy line ends a queued call", edits: []edit{
		{"internal/engine/update/several.go", "ls.borrow(c, !dependent)", "ls.borrow(c, true)"},
	}, tests: "TestLines_DoWhile_LeavesBusyLinesAlone", in: "./internal/engine/update"},
	{what: "an old read dates a later operation", edits: []edit{
		{"internal/engine/update/line.go", "func (l *Line) Unsent() { l.sent, l.fresh = nil, false }", "func (l *Line) Unsent() { l.sent = nil }"},
		{"internal/engine/update/line.go", "\t\tl.fresh = false // later calls must not be dated by the time of an old read\n", ""},
	}, tests: "TestLine_OldRead_DatesNoLaterCall", in: "./internal/engine/update"},
	{what: "an undo that fails in an outage is not repeated", edits: []edit{
		{"lockcore/party/release.go", "c.TakeBack, c.Owed = l.call(ctx, op, ending{}), true", "c.TakeBack, c.Owed = l.call(ctx, op, ending{}), false"},
	}, tests: "TestAcquire_GivesUpInAnOutage_IsTakenBack"},
	{what: "a request does not retry a full queue", edits: []edit{
		{"internal/engine/update/line.go", "(c.queued && outcome == rules.Full))", "c == nil)"},
	}, tests: "TestLine_QueueIsFullLater_CallStays", in: "./internal/engine/update"},
	{what: "a document that a poll has read is written although another process has reserved it", edits: []edit{
		{"internal/engine/update/line.go", "if l.doc.ReservedByOther(l.Process, now.At) &&", "if l.fresh && l.doc.ReservedByOther(l.Process, now.At) &&"},
	}, tests: "TestLine_OfferedDocumentIsReserved_Pauses", in: "./internal/engine/update"},
	{what: "a lease is dated by a slow answer", edits: []edit{
		{"internal/engine/update/clock.go", "<= sampleWithin }", ">= 0 }"},
	}, tests: "TestServerClock_SlowAnswer_DatesNoLease", in: "./internal/engine/update"},
	{what: "thousands of leases on one document are renewed by statements", edits: []edit{
		{"lockcore/party/renew.go", "renewedBesideLine = 20", "renewedBesideLine = 1_000_000"},
	}, tests: "TestRenew_ManyOfOneDocument_ShareASwap"},
	{what: "renewals ignore reservations, and swaps starve", edits: []edit{
		{"internal/engine/store/memory.go", "if d.yields && doc", "if false && doc"},
	}, tests: "TestLines_RenewalsOfOtherProcesses_LetSwapsSucceed", in: "./internal/engine/update"},
	{what: "a process with a round trip above 250 ms makes no reservations", edits: []edit{
		{"internal/engine/update/clock.go", "\tif !ok {\n\t\treturn rules.Reservation{}", "\tif !ok || !isShort(c.sent, c.received) {\n\t\treturn rules.Reservation{}"},
	}, tests: "TestLines_FarProcess_GetsItsTurn|TestServerClock_Reservation_LastsFourRoundTrips", in: "./internal/engine/update"},
	{what: "a reservation binds others for minutes after the server's clock was set back", edits: []edit{
		{"lockcore/rules/document.go", " &&\n\t\t!d.Reserved.Until.After(at.Add(LongestReservation))", ""},
	}, tests: "TestReservedByOther_EndsTooLate_IsIgnored", in: "./lockcore/rules"},
	{what: "a document that cannot be written is retried without end", edits: []edit{
		{"internal/engine/update/line.go", "\tl.sent = nil // the count of failures stays: a document that can be read may not be writable\n", "\tl.sent, l.failures = nil, 0\n"},
	}, simulated: true},
	{what: "a deadlock is broken on the evidence of old reads", edits: []edit{
		{"lockcore/party/deadlock.go", "l.stillExists(ctx, d); !exists {", "l.stillExists(ctx, d); !exists && err != nil {"},
	}, tests: "TestBreakDeadlocks_EndedSinceTheReads_WithdrawsNobody"},
	{what: "a victim of a deadlock is told only by the process that withdrew it", edits: []edit{
		{"lockcore/party/park.go", "case w.IsTombstone(d.At):", "case false && w.IsTombstone(d.At):"},
		{"lockcore/party/deadlock.go", "\treturn true, nil\n}\n\n// victimOf", "\twakeup := wakeupOf(a.After, w.LockID, w.Run, w.Part, w.Order.number())\n\twakeup.Deadlock = cycle\n\tl.watch.notify([]Wakeup{wakeup})\n\treturn true, nil\n}\n\n// victimOf"},
	}, tests: "TestWatchFor_Deadlock_WakesTheVictim", simulated: true},
	{what: "a step that gives up does not wait for the write that may have granted its lock", edits: []edit{
		{"lockcore/party/enter.go", "if err != nil && w.ticket.InFlight() {", "if err != nil && false {"},
	}, tests: "TestEnter_GrantedWhileItGivesUp_Holds", simulated: true},
	{what: "a recheck accepts a read older than its request", edits: []edit{
		{"lockcore/party/park.go", "known := next.By", "known := d == nil || d != nil || next.By"},
	}, tests: "TestRecheck_ReadIsOlderThanTheRequest_IsBusy"},
	{what: "a lost answer about several resources loses the position", edits: []edit{
		{"lockcore/party/enter.go", "\t\tcalls[i], spans[i] = l.acquireCall(ctx, req, &ops[i])\n", "\t\tcalls[i], spans[i] = l.acquireCall(ctx, req, &ops[i])\n\t\tcalls[i].TakeBack = l.undoCall(ctx, &ops[i])\n"},
	}, simulated: true},
	{what: "in the deadlock search, a request that may join waits for the queue", edits: []edit{
		{"lockcore/party/waitgraph.go", "n.joins = holds &&", "n.joins = holds && !holds &&"},
		{"lockcore/party/waitgraph.go", "queue.Next(w).Answer == rules.NextGo", "queue == nil"},
	}, tests: "TestAcquire_SameLockIDHolds_JoinsPastTheQueue|TestWatchFor_SameLockIDHolds_WakesTheWaiterThatJoins"},
	{what: "until a hold has been observed, each hand-over is found by a usual poll", edits: []edit{
		{"lockcore/party/enter.go", "afterHolds(pace.UnknownHold, position, limit)", "time.Second"},
	}, tests: "TestWatcher_NoHoldObserved_HandOversAreFast"},
	{what: "no watcher passes a dead head of the queue", edits: []edit{
		{"lockcore/party/watch.go", "pause > 0 && q.Due() {", "pause > 0 && q.Due() && false {"},
	}, tests: "TestQueue_DeadWaitersAhead_CostTheirClaims", simulated: true},
	{what: "a lease that a batch did not renew is not renewed alone", edits: []edit{
		{"lockcore/party/renew.go", "\t\t\t\talone = append(alone, i)\n\t\t\tcase repeat:", "\t\t\t\tapply(i, renewResult{leases[i], &LostError{Resource: leases[i].Resource, LockID: leases[i].LockID, Part: leases[i].Part}})\n\t\t\tcase repeat:"},
	}, tests: "TestKeeper_OneDocumentFails_OthersAreRenewed", simulated: true},
	{what: "a request that gives up ends a hold that another part has joined", edits: []edit{
		{"lockcore/rules/end.go", "return e.ID == op.Call || e.ID == keptID(op.Call) ||", "return e.ID == op.Call || e.State == StateKept ||"},
	}, tests: "TestEnter_GivesUpHoldThatAnotherJoined_KeepsIt", simulated: true},
	{what: "a cancelled request keeps what it was granted", edits: []edit{
		{"lockcore/party/release.go", "\tctx, cancel := l.detached(ctx)\n\tdefer cancel()\n\t_ = l", "\t_ = l"},
	}, simulated: true},
	{what: "default orders come from the process's clock", edits: []edit{
		{"lockcore/party/request.go", "rand.Text()[:16], Order{Attempt: 1}", "rand.Text()[:0], Order{Schedule: uint32(time.Now().Unix()), Attempt: 1}"},
	}, tests: "TestTryAcquire_ClockBehindAnotherProcess_IsNotSuperseded"},
	{what: "a forced release ends a later hold too", edits: []edit{
		{"lockcore/rules/end.go", "\t\treturn e.LockID == op.LockID && e.FirstFence == op.FirstFence\n", "\t\treturn e.LockID == op.LockID\n"},
	}, tests: "TestRelease_ForcedAgain_EndsNothingGrantedSince", simulated: true},
	{what: "a forced release drains a holder that is known to be dead", edits: []edit{
		{"lockcore/rules/end.go", "return op.Now || (", "return ("},
	}, tests: "TestRelease_ForcedAgain_EndsNothingGrantedSince"},
	{what: "a release that finds nothing reports a loss", edits: []edit{
		{"lockcore/party/release.go", "part := a.After.LostHold(lease.LockID, lease.FirstFence)", "part := true"},
	}, tests: "TestSessionRelease_HoldWasLost_ReturnsLostError"},
	{what: "an endless lease is renewed at the pace of others", edits: []edit{
		{"lockcore/party/renew.go", ">= h.ttl/12", ">= Forever"},
	}, tests: "TestKeeper_EndlessSession_IsRenewedRarely", simulated: true},
	{what: "a session without leases is polled without a pause", edits: []edit{
		{"lockcore/party/renew.go", "\t\t\tcontinue\n\t\tcase over(trusted, now):", "\t\t\tfound.pause = 0\n\t\t\tcontinue\n\t\tcase over(trusted, now):"},
	}, tests: "TestNewSession_NoLeases_DoesNothing", simulated: true},
	{what: "a session does not report a loss after its context has ended", edits: []edit{
		{"lockcore/party/session.go", "\tif s.lost == nil {\n\t\treturn nil", "\tif s.lost == nil || context.Cause(s.ctx) != error(s.lost) {\n\t\treturn nil"},
	}, tests: "TestSession_LostAfterItsContextEnded_ReportsTheLoss", simulated: true},
	{what: "a session trusts an exclusive lease during its downgrade", edits: []edit{
		{"lockcore/party/session.go", "\t\ts.trustShared(lease.Resource)\n", ""},
	}, tests: "TestDowngrade_AnswerLost_TrustsSharedOnly", simulated: true},
	{what: "a transient error ends the wait of a queued request", edits: []edit{
		{"lockcore/party/acquire.go", "case w.busy != nil && isTransient(err):", "case false:"},
	}, tests: "TestAcquire_ErrorsWhileQueued_KeepThePosition", simulated: true},
	{what: "an upgrade is refused if the queue is full", edits: []edit{
		{"lockcore/rules/acquire.go", "index < 0 && !ahead && int64", "index < 0 && int64"},
	}, tests: "TestUpgrade_QueueIsFull_Queues", in: "./lockcore/rules"},
	{what: "requests with the limit 1 are left out of the deadlock search", edits: []edit{
		{"lockcore/party/waitgraph.go", "if w.Limit == 1 {", "if false {"},
	}, tests: "TestDeadlock_Victim_Ends", simulated: true},
	{what: "a deadlock may contain a smaller one", edits: []edit{
		{"lockcore/party/waitgraph.go", "within)); smaller != nil {", "within)); smaller != nil && false {"},
	}, tests: "TestDeadlocks_RandomSituations_AreMinimalAndEnd"},
	{what: "an owner that waits for itself is not in a deadlock", edits: []edit{
		{"lockcore/party/waitgraph.go", "to = []int{n}", "to = nil"},
	}, tests: "TestDeadlocks_RandomSituations_AreMinimalAndEnd"},
	{what: "a deadlock through several steps of one workflow is not found", edits: []edit{
		{"lockcore/party/waitgraph.go", "if o.tie == (tie{owner: w.owner}) {", "if to = slices.Clone(to); o.tie.owner == w.owner && o.tie.lockID != \"\" {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tif o.tie == (tie{owner: w.owner}) {"},
	}, tests: "TestDeadlocks_RandomSituations_AreMinimalAndEnd"},
	{what: "a request waits for compatible requests ahead", edits: []edit{
		{"lockcore/party/waitgraph.go", " && !rules.Compatible(effectiveMode(o.waiter), w.party.Mode)", ""},
	}, tests: "TestDeadlocks_Situations_NamesMinimalCycles"},
	{what: "a deadlock is confirmed by writes of cached documents", edits: []edit{
		{"lockcore/party/deadlock.go", "c.Reads = true", "c.Reads = false"},
	}, tests: "TestBreakDeadlocks_Confirmation_ReadsTheDocuments"},
	{what: "a semaphore with the limit 0 has no limit", edits: []edit{
		{"lockcore/party/request.go", "\t\tlimit = zeroLimit\n", "\t\tlimit = 0\n"},
	}, tests: "TestSharedLimit_Zero_IsRefused"},
	{what: "a lease replaced at its expiry is not checked again", edits: []edit{
		{"lockcore/party/renew.go", "\t\t\tsooner(now) // what replaces the lease in this moment is looked at then\n", ""},
	}, tests: "TestKeeper_LeaseReplacedWhenItExpires_IsCheckedAgain"},
	{what: "an earlier wait's search delays the next search", edits: []edit{
		{"lockcore/party/watch.go", "\tw.searching = false\n\tif", "\tw.searching, w.searchAt = false, time.Now().Add(pace.Search)\n\tif"},
	}, tests: "TestWatcher_EarlierSearch_DoesNotDelayTheNext"},
	{what: "a forced release of an endless lease does not drain it", edits: []edit{
		{"lockcore/rules/settle.go", "2*ms(e.TTL) + EndlessTTL", "2 * ms(e.TTL)"},
	}, tests: "TestSession_EndlessLeaseForced_EndsInTime", simulated: true},
	{what: "leaving the queue ends the part that confirmed the claim", edits: []edit{
		{"lockcore/party/ended.go", "\t\tQueueOnly: true,\n", ""},
	}, tests: "TestLeaveQueue_ClaimWasTakenUp_KeepsThePart", simulated: true},
	{what: "another call with the same order joins a running part", edits: []edit{
		{"lockcore/rules/acquire.go", "return p != nil && p.Alive(s.now) && p.ID != op.Call && p.ID != op.Upgrades", "return false && p != nil"},
		{"lockcore/rules/acquire.go", "return p != nil && p.ID == op.Call && p.Alive(s.now)", "return p != nil && p.Alive(s.now)"},
	}, simulated: true},
	{what: "a step's busy error does not report since when it was not held", edits: []edit{
		{"lockcore/party/errors.go", "(e.CutOff || rules.Covers(e.Mode, op.Mode))", "true"},
	}, tests: "TestEnter_Busy_ReportsSinceWhenItWasNotHeld"},
	{what: "a claim that no longer fits makes its waiter retry without a pause", edits: []edit{
		{"lockcore/rules/acquire.go", "\tcase !op.Queue:\n", "\tcase !op.Queue || (claim != nil && claim.Alive(s.now)):\n"},
	}, tests: "TestAcquire_ClaimNoLongerFits_Queues", in: "./lockcore/rules"},
	{what: "a long hold is polled at the pace of short ones", edits: []edit{
		{"lockcore/party/watch.go", "max(grantIn, time.Since(one.moved))", "grantIn"},
	}, tests: "TestWatcher_LongHold_IsReadLessOften"},
	{what: "requests wait in the slot however long holds last", edits: []edit{
		{"lockcore/party/enter.go", "busy.grantIn/time.Duration(busy.Position) < pace.PositionWait && busy.grantIn < max(wait/2, min(wait, pace.PositionWait))", "wait > 0*pace.PositionWait"},
	}, tests: "TestEnter_LongHolds_DoesNotWait|TestEnter_ShortHolds_WaitsWhileItsGrantIsNear"},
	{what: "a request waits in the slot behind more than may wait", edits: []edit{
		{"lockcore/party/enter.go", " || int64(busy.Position) > l.inline.most.Load()", ""},
	}, tests: "TestEnter_BehindMoreThanMayWait_DoesNotWait"},
	{what: "a resource is polled although its holder is in the same process", edits: []edit{
		{"lockcore/party/watch.go", "\t\t\tr.holder = one.request.LockID\n", ""},
	}, tests: "TestWatcher_HolderInTheSameProcess_ReadsRarely"},
	{what: "a kept hold is expected to end in the process of its step", edits: []edit{
		{"lockcore/party/watch.go", " && !one.keeps", ""},
	}, tests: "TestWatcher_KeptHold_IsReadOften"},
	{what: "a request stops waiting in the slot although its position moves", edits: []edit{
		{"lockcore/party/watch.go", "one.position, one.moved = next.Position, time.Now()", "one.position = next.Position"},
	}, tests: "TestEnter_GrantIsLate_WaitsWhileThePositionMoves"},
	{what: "a request waits in the slot although its position does not move", edits: []edit{
		{"lockcore/party/watch.go", "time.Since(one.moved) >= pace.PositionWait", "time.Since(one.moved) >= 100*pace.PositionWait"},
	}, tests: "TestEnter_PositionDoesNotMove_StopsWaiting"},
	{what: "each resource of a request has a MaxWait of its own", edits: []edit{
		{"lockcore/party/enter.go", "req.MaxWait = max(0, req.MaxWait-time.Since(began))", "_ = began"},
	}, tests: "TestEnter_MaxWait_IsSharedByAllResources"},
	{what: "leases expire while the request waits for its other resources", edits: []edit{
		{"lockcore/party/enter.go", "min(req.MaxWait, req.TTL/4)", "min(req.MaxWait, 10*req.TTL)"},
	}, tests: "TestEnter_MaxWait_IsSharedByAllResources"},
	{what: "each parked resource is read by a command of its own", edits: []edit{
		{"lockcore/party/watch.go", "now.Add(pace.Coalesce)", "now.Add(pace.Coalesce * 0)"},
	}, tests: "TestWatchFor_ManyResources_AreReadTogether"},
	{what: "any number of requests waits in the slot", edits: []edit{
		{"lockcore/party/enter.go", "if i.waits.Add(1) > i.most.Load() {", "if i.waits.Add(1) < 0 {"},
	}, tests: "TestLimitInlineWaits_MoreRequests_DoNotWait"},
	{what: "parked requests far from their grant are called up", edits: []edit{
		{"lockcore/party/watch.go", "grantIn > pace.WakeLead ||", "grantIn > 1000*pace.WakeLead ||"},
	}, tests: "TestOnWakeup_ShortHolds_CallsParkedRequestsEarly"},
	{what: "a run that takes over compares its orders with those of the run before", edits: []edit{
		{"lockcore/rules/runs.go", "e.FirstOrder, e.Order = label, fence, fence, 0, 0", "e.Order = label, fence, fence, 0"},
	}, tests: "TestVerify_TakenOverHold_IsOlderThanEveryUse"},
	{what: "a run that a reset has made does not count what the run before has lost", edits: []edit{
		{"lockcore/rules/find.go", "return !since.IsZero() && !e.At.Before(since)", "return since.IsZero() && !e.At.Before(since)"},
	}, tests: "TestVerify_RunBeforeLostTheHold_IsLost"},
	{what: "a verification accepts a hold that began after its use", edits: []edit{
		{"lockcore/rules/find.go", "k != nil && k.FirstOrder <= order", "k != nil"},
	}, tests: "TestVerify_HoldWasAcquiredAgain_IsLost", simulated: true},
	{what: "a verification does not renew the hold", edits: []edit{
		{"lockcore/rules/runs.go", "\ts.renewKept(op.LockID)\n\tif !s.doc.Keeps", "\tif !s.doc.Keeps"},
	}, tests: "TestVerify_Held_IsRenewedAndNotReleased"},
	{what: "a verification releases the hold", edits: []edit{
		{"lockcore/rules/runs.go", "\t\ts.result.Outcome = Lost\n\t}\n\treturn s.end()\n", "\t\ts.result.Outcome = Lost\n\t} else {\n\t\ts.endEntries(func(e *Entry) bool { return e.BelongsTo(op.LockID) && e.State == StateKept })\n\t}\n\treturn s.end()\n"},
	}, tests: "TestVerify_Held_IsRenewedAndNotReleased", simulated: true},
	{what: "a bar returns while a part that it cut off may run", edits: []edit{
		{"lockcore/rules/bars.go", "len(op.StillRunning(&known)) > 0", "len(op.StillRunning(&known)) < 0"},
	}, tests: "TestRaise_RunningPart_IsCutOffAndWaitedFor", simulated: true},
	{what: "a bar does not cut off running parts", edits: []edit{
		{"lockcore/rules/bars.go", "if e.State == StateKept || e.CutOff || !which(", "if true || e.State == StateKept || e.CutOff || !which("},
	}, tests: "TestRaise_RunningPart_IsCutOffAndWaitedFor", simulated: true},
	{what: "a bar does not match the sagas inside its saga", edits: []edit{
		{"lockcore/rules/bars.go", "return ok && (rest == \"\" || rest[0] == '/')", "return ok && rest == \"\""},
	}, tests: "TestRaise_SagaInside_IsBarred", simulated: true},
	{what: "the bars of a hold end with it", edits: []edit{
		{"lockcore/rules/settle.go", "\ts.moveBars()\n", ""},
	}, tests: "TestRaise_HoldIsEvicted_BarRemains"},
	{what: "each call of a bar draws a fence", edits: []edit{
		{"lockcore/rules/bars.go", "if s.addBar(op.bar()) {", "if s.addBar(op.bar()) || true {"},
	}, tests: "TestRaise_Repeated_DrawsNoFence"},
	{what: "a bar fences off running steps of the outer saga", edits: []edit{
		{"lockcore/rules/bars.go", "if !running {", "if !running || true {"},
	}, tests: "TestUpdateFenced_CompensationAfterABar_BarsTheStep"},
	{what: "a saga that has committed after a loss never learns of it", edits: []edit{
		{"lockcore/rules/end.go", "\ts.recordMissed(&op)\n", ""},
	}, tests: "TestReleaseCommitted_HoldWasLost_IsReportedForADay"},
	{what: "a request takes its resources in the order given", edits: []edit{
		{"lockcore/party/request.go", "int { return strings.Compare(a.Name, b.Name) }", "int { return 0 * strings.Compare(a.Name, b.Name) }"},
	}, simulated: true},
	{what: "an undo leaves one of several resources", edits: []edit{
		{"lockcore/party/enter.go", "\t\t\tl.undo(ctx, req.leasesFrom(first, true)...)\n", "\t\t\t_ = first\n"},
	}, simulated: true},
	{what: "a failed command is retried without a pause", edits: []edit{
		{"internal/engine/update/loop.go", "\t\td := failurePause(min(failures, mostTries))", "\t\td := time.Duration(1+0*failures) * time.Millisecond"},
		{"lockcore/party/acquire.go", "min(time.Second<<min(failures, 5), 30*time.Second)", "time.Millisecond"},
	}, simulated: true},
}
