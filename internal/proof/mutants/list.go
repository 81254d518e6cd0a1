package main

const header = `# What finds the defects that lockcore had

Each row is a defect that lockcore once had, or that its parts could have, made on purpose by a change of its source. The last column
says what was seen to find it: a seed of the simulation in ` + "`internal/proof/simulation`" + `, with the kind of violation, or a
test, or both. A seed counts only if it passes without the change; how often it fails with it, of 10 times, is beside it. "not shown
yet" means that the change was not played, or that nothing that was tried finds it.

Defects of the rules alone are in the mutants of package rules, and those of the store in its tests.

This page is written by

    go run ./internal/proof/mutants

Some defects of earlier engines cannot exist any longer:

| defect | why |
| --- | --- |
| a late copy of a command is granted, or supersedes its repetition | a copy names the version that it replaces, and that is gone |
| a request that gave up is not left again when no late copy can come any more | the same |
| whether a late copy may still come is judged too late | nothing is judged by the age of a command |
| a first request takes what its own lost command was granted for another's | each call has an ID, which is stored with its grant |
| the verdict on a deadlock is a record that later ones push out | the verdict is a tombstone in the queue |
| a waiter that one swap serves twice is taken back | what is owed is decided when a call is abandoned |
| a command for several resources continues beyond a busy one | what a command contains was decided before it is sent |

| defect | what was put back | what finds it |
| --- | --- | --- |
`

const engineTests = "./lockcore/party"

// mutant is a defect, made by edits of the source.
type mutant struct {
	defect, what string
	edits        []edit
	// tests, if not empty, is a pattern for go test -run of the tests in package party that find it.
	tests string
	// simulated is set if a seed of the simulation finds it.
	simulated bool
	// check, if not empty, is the check of the fuzzer of sagas that finds it.
	check string
}

// edit replaces a text that must occur once in a file.
type edit struct{ file, old, new string }

var mutants = []mutant{
	{defect: "loop", what: "an extension does not change the version", edits: []edit{
		{"internal/engine/store/memory.go", "\td.Version = rules.Version{N: d.Version.N + 1, R: r}\n", "\t_ = r\n"},
	}, simulated: true},
	{defect: "loop", what: "expiry is judged by a document from the cache", edits: []edit{
		{"internal/engine/update/line.go", "(guess.At.IsZero() || l.doc.ExpiresBy(guess.At) || l.isOld(guess.At))", "guess.At.IsZero()"},
	}, simulated: true},
	{defect: "loop", what: "a request is told from the cache that others are in its way", edits: []edit{
		{"internal/engine/update/line.go", "\tvar step Step\n\tif l.fresh {", "\tvar step Step\n\tif true {"},
		{"internal/engine/update/line.go", "t.Call.arrived < l.read", "t.Call != nil"},
	}, simulated: true},
	{defect: "loop", what: "a command for several documents continues after a conflict", edits: []edit{
		{"internal/engine/store/memory.go", "\t\tif exists && stored.version != s.Prev {\n\t\t\treturn i, nil", "\t\tif exists && stored.version != s.Prev {\n\t\t\tcontinue"},
	}, simulated: true},
	{defect: "loop", what: "a conflict is taken for proof that a lost swap was not applied", edits: []edit{
		{"internal/engine/update/line.go", "func (l *Line) Conflicted() {\n", "func (l *Line) Conflicted() {\n\tl.WriteOff()\n\tfor _, c := range l.calls {\n\t\tdefer func() { c.unknown = false }()\n\t}\n"},
	}, simulated: true},
	{defect: "loop", what: "what a lost swap may have done is forgotten", edits: []edit{
		{"internal/engine/update/line.go", "func (l *Line) takeBack(c *Call) {\n", "func (l *Line) takeBack(c *Call) {\n\tif c != nil {\n\t\treturn\n\t}\n"},
	}, simulated: true},
	{defect: "loop", what: "a request is superseded without a swap", edits: []edit{
		{"lockcore/rules/settle.go", "r.ReadOnly = (r.Outcome == Busy", "r.ReadOnly = (r.Outcome == Superseded || r.Outcome == Busy"},
	}, simulated: true},
	{defect: "found by the simulation", what: "a call for a busy line is queued only to be taken back", edits: []edit{
		{"internal/engine/update/several.go", "ls.borrow(c, !dependent)", "ls.borrow(c, true)"},
	}, simulated: true},
	{defect: "found by the simulation", what: "an old read dates an operation that arrives later", edits: []edit{
		{"internal/engine/update/line.go", "func (l *Line) Unsent() { l.sent, l.fresh = nil, false }", "func (l *Line) Unsent() { l.sent = nil }"},
		{"internal/engine/update/line.go", "\t\tl.fresh = false // later calls must not be dated by the time of an old read\n", ""},
	}, simulated: true},
	{defect: "found by the simulation", what: "what a request gives back during an outage is forgotten", edits: []edit{
		{"lockcore/party/release.go", "c.TakeBack, c.Owed = l.call(ctx, op, ending{}), true", "c.TakeBack, c.Owed = l.call(ctx, op, ending{}), false"},
	}, simulated: true},
	{defect: "found by the simulation", what: "a waiter that finds its queue full does not ask again", edits: []edit{
		{"internal/engine/update/line.go", "(c.queued && outcome == rules.Full))", "c == nil)"},
	}, simulated: true},
	{defect: "found by the simulation", what: "a lease is dated by a slow answer", edits: []edit{
		{"internal/engine/update/clock.go", "<= sampleWithin {", ">= 0 {"},
	}, simulated: true},
	{defect: "found by the simulation", what: "a document that can be read but not written is tried on and on", edits: []edit{
		{"internal/engine/update/line.go", "\tl.sent = nil // the count of failures stays: a document that can be read may not be writable\n", "\tl.sent, l.failures = nil, 0\n"},
	}, simulated: true},
	{defect: "found by the simulation", what: "a deadlock is believed by what old reads show", edits: []edit{
		{"lockcore/party/deadlock.go", "l.stillExists(ctx, d); !exists {", "l.stillExists(ctx, d); !exists && err != nil {"},
	}, simulated: true},
	{defect: "found by the simulation", what: "a recheck trusts a read that is older than its request", edits: []edit{
		{"lockcore/party/park.go", "known := next.By", "known := d == nil || d != nil || next.By"},
	}, simulated: true},
	{defect: "found by the simulation", what: "a lost answer about several resources costs the request its turn", edits: []edit{
		{"lockcore/party/enter.go", "\t\tcalls[i], spans[i] = l.acquireCall(ctx, req, &ops[i])\n", "\t\tcalls[i], spans[i] = l.acquireCall(ctx, req, &ops[i])\n\t\tcalls[i].TakeBack = l.undoCall(ctx, &ops[i])\n"},
	}, simulated: true},
	{defect: "1", what: "a request whose lock ID holds waits, for the deadlock search, for those ahead of it", edits: []edit{
		{"lockcore/party/deadlock.go", "joins := d.Covered(party)", "joins := false"},
		{"lockcore/party/deadlock.go", "queue.Next(w).Answer != rules.NextGo", "queue != nil"},
	}, tests: "TestAcquire_SameLockIDHolds_JoinsPastTheQueue|TestWatchFor_SameLockIDHolds_WakesTheWaiterThatJoins"},
	{defect: "2", what: "no watcher writes a document whose head is dead", edits: []edit{
		{"lockcore/party/watch.go", "q.Due() && w.locker.settle(ctx, name)", "q.Due() && false"},
	}, tests: "TestQueue_DeadWaitersAhead_CostTheirClaims", simulated: true},
	{defect: "3", what: "what a batch did not renew is not renewed alone", edits: []edit{
		{"lockcore/party/renew.go", "\t\t\t} else {\n\t\t\t\talone = append(alone, i)\n\t\t\t}\n\t\t}\n", "\t\t\t} else {\n\t\t\t\tapply(i, renewResult{leases[i], &LostError{Resource: leases[i].Resource, LockID: leases[i].LockID, Part: leases[i].Part}})\n\t\t\t}\n\t\t}\n"},
	}, tests: "TestKeeper_OneDocumentFails_OthersAreRenewed", simulated: true},
	{defect: "5", what: "a request that gives up undoes a hold that another part has joined", edits: []edit{
		{"lockcore/rules/end.go", "e.State == StateKept && !e.Joined &&", "e.State == StateKept &&"},
	}, tests: "TestEnter_GivesUpHoldThatAnotherJoined_KeepsIt", simulated: true},
	{defect: "6", what: "a request gives nothing back when its context has ended", edits: []edit{
		{"lockcore/party/release.go", "\tctx, cancel := l.detached(ctx)\n\tdefer cancel()\n\t_ = l", "\t_ = l"},
	}, simulated: true},
	{defect: "7", what: "orders of requests that name none come from the process's clock", edits: []edit{
		{"lockcore/party/request.go", "rand.Text()[:16], Order{Attempt: 1}", "rand.Text()[:0], Order{Schedule: uint32(time.Now().Unix()), Attempt: 1}"},
	}, tests: "TestTryAcquire_ClockBehindAnotherProcess_IsNotSuperseded"},
	{defect: "8", what: "a forced release that names a hold ends whatever the lock ID holds", edits: []edit{
		{"lockcore/rules/end.go", "\t\treturn e.LockID == op.LockID && e.FirstFence == op.FirstFence\n", "\t\treturn e.LockID == op.LockID\n"},
	}, tests: "TestRelease_ForcedAgain_EndsNothingGrantedSince", simulated: true},
	{defect: "9", what: "a forced release waits for the drain of a holder that is known to be dead", edits: []edit{
		{"lockcore/rules/end.go", "return op.Now || (", "return ("},
	}, tests: "TestRelease_ForcedAgain_EndsNothingGrantedSince"},
	{defect: "10", what: "a release that finds nothing is taken for a loss", edits: []edit{
		{"lockcore/party/release.go", "\tif !lost {\n", "\tif false {\n"},
	}, tests: "TestSessionRelease_HoldWasLost_ReturnsLostError"},
	{defect: "12", what: "a session without end is renewed with every other", edits: []edit{
		{"lockcore/party/renew.go", ">= h.ttl/12", ">= Forever"},
	}, tests: "TestKeeper_EndlessSession_IsRenewedRarely", simulated: true},
	{defect: "12", what: "a session of nothing is looked at without a pause", edits: []edit{
		{"lockcore/party/renew.go", "\t\t\tcontinue\n\t\tcase over(trusted, now):", "\t\t\tfound.pause = 0\n\t\t\tcontinue\n\t\tcase over(trusted, now):"},
	}, tests: "TestNewSession_NoLeases_DoesNothing", simulated: true},
	{defect: "12", what: "a session tells of no loss that came after its context had ended", edits: []edit{
		{"lockcore/party/session.go", "\tif s.lost == nil {\n\t\treturn nil", "\tif s.lost == nil || context.Cause(s.ctx) != error(s.lost) {\n\t\treturn nil"},
	}, tests: "TestSession_LostAfterItsContextEnded_ReportsTheLoss", simulated: true},
	{defect: "12", what: "a session trusts its exclusive lease while a downgrade is under way", edits: []edit{
		{"lockcore/party/session.go", "\t\ts.trustShared(lease.Resource)\n", ""},
	}, tests: "TestDowngrade_AnswerLost_TrustsSharedOnly", simulated: true},
	{defect: "12", what: "a passing error ends the wait of a request that has queued", edits: []edit{
		{"lockcore/party/acquire.go", "case w.busy != nil && isTransient(err):", "case false:"},
	}, tests: "TestAcquire_ErrorsWhileQueued_KeepThePosition", simulated: true},
	{defect: "12", what: "an upgrade is refused if the queue is full", edits: []edit{
		{"lockcore/rules/acquire.go", "index < 0 && !ahead && int64", "index < 0 && int64"},
	}, simulated: true},
	{defect: "12", what: "requests with the limit 1 are in no deadlock", edits: []edit{
		{"lockcore/party/deadlock.go", "if party.Limit == 1 && !joins {", "if false {"},
	}, tests: "TestDeadlock_Victim_Ends", simulated: true},
	{defect: "12", what: "a semaphore of no places is one without limit", edits: []edit{
		{"lockcore/party/request.go", "\t\tlimit = zeroLimit\n", "\t\tlimit = 0\n"},
	}, tests: "TestSharedLimit_Zero_IsRefused"},
	{defect: "13", what: "a lease that is replaced in the moment in which it expires is not looked at again", edits: []edit{
		{"lockcore/party/renew.go", "\t\t\tsooner(now) // what replaces the lease in this moment is looked at then\n", ""},
	}, tests: "TestKeeper_LeaseReplacedWhenItExpires_IsCheckedAgain"},
	{defect: "13", what: "the end of an earlier wait's search puts off the next search", edits: []edit{
		{"lockcore/party/watch.go", "\tw.searching = false\n\tif", "\tw.searching, w.searchAt = false, time.Now().Add(pace.Search)\n\tif"},
	}, tests: "TestWatcher_EarlierSearch_DoesNotDelayTheNext"},
	{defect: "found by the simulation", what: "a forced release of a lease without end waits for nothing", edits: []edit{
		{"lockcore/rules/settle.go", "2*ms(e.TTL) + EndlessTTL", "2 * ms(e.TTL)"},
	}, tests: "TestSession_EndlessLeaseForced_EndsInTime", simulated: true},
	{defect: "found on the servers", what: "giving up a place ends the part that has taken its claim up", edits: []edit{
		{"lockcore/party/release.go", "\t\t\tQueueOnly: how.queueOnly,\n", ""},
	}, tests: "TestLeaveQueue_ClaimWasTakenUp_KeepsThePart", simulated: true},
	{defect: "found on the servers", what: "another call with the same order shares the part of one that runs", edits: []edit{
		{"lockcore/rules/acquire.go", "return p != nil && p.Alive(s.now) && p.ID != op.Call && p.ID != op.Upgrades", "return false && p != nil"},
		{"lockcore/rules/acquire.go", "return p != nil && p.ID == op.Call && p.Alive(s.now)", "return p != nil && p.Alive(s.now)"},
	}, simulated: true},
	{defect: "found on the servers", what: "a step that wants a resource alone may have run if its saga holds it shared", edits: []edit{
		{"lockcore/party/errors.go", "(e.CutOff || rules.Covers(e.Mode, op.Mode))", "true"},
	}, tests: "TestEnter_Busy_ReportsSinceWhenItWasNotHeld"},
	{defect: "found by the simulation", what: "a claim for which there is no room any more has its waiter ask again and again", edits: []edit{
		{"lockcore/rules/acquire.go", "\tcase !op.Queue:\n", "\tcase !op.Queue || (claim != nil && claim.Alive(s.now)):\n"},
	}, simulated: true},
	{defect: "turns", what: "a turn that does not come is looked for at the pace of turns", edits: []edit{
		{"lockcore/party/watch.go", "max(grantIn, time.Since(one.moved))", "grantIn"},
	}, tests: "TestWatcher_LongHold_IsReadLessOften"},
	{defect: "turns", what: "whoever queues waits inline, however long the holds last", edits: []edit{
		{"lockcore/party/enter.go", "busy.grantIn/time.Duration(busy.Position) < pace.PositionWait && busy.grantIn < max(wait/2, min(wait, pace.PositionWait))", "wait > 0"},
	}, tests: "TestEnter_LongHolds_DoesNotWait|TestEnter_ShortHolds_WaitsWhileItsGrantIsNear"},
	{defect: "turns", what: "who is behind more than may wait waits too", edits: []edit{
		{"lockcore/party/enter.go", " || int64(busy.Position) > l.inline.most.Load()", ""},
	}, tests: "TestEnter_BehindMoreThanMayWait_DoesNotWait"},
	{defect: "turns", what: "a turn is looked for although its predecessor is in the same process", edits: []edit{
		{"lockcore/party/watch.go", "grantIn > 0 && !here", "grantIn > 0 && (here || !here)"},
	}, tests: "TestWatcher_HolderInTheSameProcess_ReadsRarely"},
	{defect: "turns", what: "a saga's hold is expected to end in the process of its step", edits: []edit{
		{"lockcore/party/watch.go", " && !one.keeps", ""},
	}, tests: "TestWatcher_KeptHold_IsReadOften"},
	{defect: "turns", what: "a turn that is near is given up after Near, although the place moves", edits: []edit{
		{"lockcore/party/watch.go", "one.position, one.moved = next.Position, time.Now()", "one.position = next.Position"},
	}, tests: "TestEnter_GrantIsLate_WaitsWhileThePositionMoves"},
	{defect: "turns", what: "a turn is waited for in a slot although the place does not move", edits: []edit{
		{"lockcore/party/watch.go", "time.Since(one.moved) >= pace.PositionWait", "time.Since(one.moved) >= 100*pace.PositionWait"},
	}, tests: "TestEnter_PositionDoesNotMove_StopsWaiting"},
	{defect: "turns", what: "each resource of a request has a MaxWait of its own", edits: []edit{
		{"lockcore/party/enter.go", "req.MaxWait = max(0, req.MaxWait-time.Since(began))", "_ = began"},
	}, tests: "TestEnter_MaxWait_IsSharedByAllResources"},
	{defect: "turns", what: "what a request takes before expires while it waits for the rest", edits: []edit{
		{"lockcore/party/enter.go", "min(req.MaxWait, req.TTL/4)", "min(req.MaxWait, 10*req.TTL)"},
	}, tests: "TestEnter_MaxWait_IsSharedByAllResources"},
	{defect: "turns", what: "each of many parked resources is read by a command of its own", edits: []edit{
		{"lockcore/party/watch.go", "now.Add(pace.Coalesce)", "now.Add(pace.Coalesce * 0)"},
	}, tests: "TestWatchFor_ManyResources_AreReadTogether"},
	{defect: "turns", what: "any number waits inline", edits: []edit{
		{"lockcore/party/enter.go", "if i.waits.Add(1) > i.most.Load() {", "if i.waits.Add(1) < 0 {"},
	}, tests: "TestLimitInlineWaits_MoreRequests_DoNotWait"},
	{defect: "turns", what: "parked requests are called up whose turn is not near", edits: []edit{
		{"lockcore/party/watch.go", "grantIn > pace.WakeLead ||", "grantIn > 1000*pace.WakeLead ||"},
	}, tests: "TestOnWakeup_ShortHolds_CallsParkedRequestsEarly"},
	{defect: "commits", what: "a run that takes over forgets which request began the hold", edits: []edit{
		{"lockcore/rules/runs.go", "e.Label, e.Fence, e.LeastFence, e.Order, e.HandedOver = label, fence, fence, 0, false", "e.Label, e.Fence, e.LeastFence, e.Order, e.FirstOrder, e.HandedOver = label, fence, fence, 0, 0, false"},
	}, tests: "TestVerify_TakenOverHoldBeganAfterTheUse_IsLost", simulated: true},
	{defect: "commits", what: "a verification takes a hold that began after the use for the one that was used", edits: []edit{
		{"lockcore/rules/find.go", "k != nil && k.FirstOrder <= order", "k != nil"},
	}, tests: "TestVerify_HoldWasAcquiredAgain_IsLost", simulated: true},
	{defect: "commits", what: "a verification does not renew the hold", edits: []edit{
		{"lockcore/rules/runs.go", "if s.renewKept(op.LockID, op.HandOver); !s.doc.Keeps", "if !s.doc.Keeps"},
	}, tests: "TestVerify_Held_IsRenewedAndNotReleased"},
	{defect: "commits", what: "a verification releases what it has verified", edits: []edit{
		{"lockcore/rules/runs.go", "\t\ts.result.Outcome = Lost\n\t}\n\treturn s.end()\n", "\t\ts.result.Outcome = Lost\n\t} else {\n\t\ts.endEntries(func(e *Entry) bool { return e.BelongsTo(op.LockID) && e.State == StateKept })\n\t}\n\treturn s.end()\n"},
	}, tests: "TestVerify_Held_IsRenewedAndNotReleased", simulated: true},
	{defect: "bars", what: "a bar is reported to be done while a part that it cut off may still run", edits: []edit{
		{"lockcore/rules/runs.go", "len(op.StillRunning(&known)) > 0", "len(op.StillRunning(&known)) < 0"},
	}, tests: "TestRaise_RunningPart_IsCutOffAndWaitedFor", simulated: true},
	{defect: "bars", what: "a bar cuts off no part that runs", edits: []edit{
		{"lockcore/rules/runs.go", "if e.State == StateKept || e.CutOff || !which(", "if true || e.State == StateKept || e.CutOff || !which("},
	}, tests: "TestRaise_RunningPart_IsCutOffAndWaitedFor", simulated: true},
	{defect: "several", what: "a request takes its resources in the order in which it names them", edits: []edit{
		{"lockcore/party/request.go", "int { return strings.Compare(a.Name, b.Name) }", "int { return 0 * strings.Compare(a.Name, b.Name) }"},
	}, simulated: true},
	{defect: "several", what: "what one command may have taken of several is not given back", edits: []edit{
		{"lockcore/party/enter.go", "\t\t\tl.undo(ctx, rest...)\n", "\t\t\t_ = rest\n"},
	}, simulated: true},
	{defect: "hot loops", what: "what failed is asked again without a pause", edits: []edit{
		{"internal/engine/update/loop.go", "\t\td := failurePause(min(failures, mostTries))", "\t\td := time.Millisecond"},
		{"lockcore/party/acquire.go", "min(time.Second<<min(failures, 5), 30*time.Second)", "time.Millisecond"},
	}, simulated: true},
}
