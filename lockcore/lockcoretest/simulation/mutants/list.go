package main

const header = `# What finds the defects that lockcore had

Each row is a defect that the lock engine once had, or that a newer part of it could have, made on purpose by a change of its source. The last column says what was
seen to find it: a seed of the simulation in ` + "`lockcore/lockcoretest/simulation`" + `, with the kind of violation, or a test, or both. A
seed counts only if it passes without the change; how often it fails with it, of 100 times, stands beside. Some defects no simulation of Lockers can see: texts, validation, and
documents of users. For the others without a seed none was searched for, or 600 did not find them. "not shown yet" says that
the change was not played, or that nothing that was tried finds it.
Rules of single operations have a page of their own, [mutants](../../internal/mongoengine/MUTANTS.md).

This page is written by

    go run ./lockcore/lockcoretest/simulation/mutants

The numbers are those under which the defects were found.

| defect | what was put back | what finds it |
| --- | --- | --- |
`

const (
	engineTests = "./lockcore"
	specTests   = "./lockcore/lockcoretest"
)

// mutant is a defect.
type mutant struct {
	defect, what string
	edits        []edit
	// tests, if not empty, find it: a pattern for go test -run, in the package.
	in, tests string
	// simulated says that a seed of the simulation finds it.
	simulated bool
	// check, if not empty, is the check of the fuzzer of sagas that finds it.
	check string
}

// edit replaces the one place in a file that has the old text.
type edit struct{ file, old, new string }

// mutants are numbered as the defects were when they were found.
var mutants = []mutant{
	{defect: "1", what: "a request whose lock ID holds waits, for the deadlock search, for those ahead of it", edits: []edit{
		{"lockcore/waitgraph.go", "joins := d.Covered(party)", "joins := false"},
		{"lockcore/waitgraph.go", "queue.Next(w).Answer != rules.NextGo", "queue != nil"},
	}, in: engineTests, tests: "TestARequestWhoseLockIDHoldsJoinsPastTheQueue|TestAParkedRequestWhoseLockIDHoldsJoinsPastTheQueue", simulated: true},
	{defect: "1", what: "a request is not called when its lock ID comes to hold", edits: []edit{
		{"lockcore/watch.go", "if d.Joins(one.request.Party()) {", "if false {"},
		{"lockcore/engine/next.go", "{ return d.Covered(p) && d.FitsBeside(p) }", "{ return false }"},
		{"lockcore/engine/next.go", "(covered && d.FitsBeside(p)) || (ahead && d.Admits(p))", "!covered && ahead && d.Admits(p)"},
	}, in: engineTests, tests: "TestARequestWhoseLockIDHoldsJoinsPastTheQueue|TestAParkedRequestWhoseLockIDHoldsJoinsPastTheQueue", simulated: true},
	{defect: "2", what: "no watcher writes a document whose head is dead", edits: []edit{
		{"lockcore/watch_look.go", "q.Due() && w.locker.settle(ctx, name)", "q.Due() && false"},
	}, in: engineTests, tests: "TestDeadPredecessorsCostTheirClaimsAndNoMore", simulated: true},
	{defect: "2", what: "dead predecessors in a crowd cost a claim each", edits: []edit{
		{"lockcore/lockcoretest/state.go", "{ return w.Waits(s.now) && !w.Overdue(s.now) }", "{ return w.Waits(s.now) }"},
		{"lockcore/engine/next.go", "w.Waits(d.At) && !w.Overdue(d.At) && !d.Joins", "w.Waits(d.At) && !d.Joins"},
	}, in: engineTests, tests: "TestACrowdOfDeadParkedRequestsCostsNoMoreThanTwentyMinutes"},
	{defect: "3", what: "what a batch did not renew is not renewed alone", edits: []edit{
		{"lockcore/renew.go", "				alone = append(alone, i)\n			}\n		}\n	}", "				apply(i, renewResult{leases[i], &LostError{Resource: leases[i].Resource, LockID: leases[i].LockID, Part: leases[i].Part, Order: leases[i].Order}})\n			}\n		}\n	}"},
	}, in: engineTests, tests: "TestDocumentThatCannotBeWrittenCostsNoOtherSessionItsLock", simulated: true},
	{defect: "4", what: "a collection in the layout of others is written", edits: []edit{
		{"lockcore/internal/mongoengine/layout.go", "	return &rules.LayoutError{Collection: e.coll.Name(), Found: found, Help: \"Use a collection of its own for these locks.\"}", "	_ = found\n	return nil"},
	}, in: engineTests, tests: "TestAnotherLayoutIsRefused"},
	{defect: "5", what: "a request that gives up undoes a hold that another part has joined", edits: []edit{
		{"lockcore/lockcoretest/spec_end.go", "e.State == rules.StateKept && !e.Joined", "e.State == rules.StateKept"},
	}, in: engineTests, tests: "TestRequestThatGivesUpLeavesAHoldThatAnotherEntered", simulated: true},
	{defect: "found by review", what: "a request that keeps nothing, and gives up, undoes a hold that another part keeps", edits: []edit{
		{"lockcore/answer.go", "op.Persist", "true"},
	}, in: engineTests, tests: "TestRequestThatGivesUpLeavesAHoldThatAnotherEntered"},
	{defect: "6", what: "what a request that gave up has left is not cleaned up later", edits: []edit{
		{"lockcore/close.go", "			l.cleanLater(ctx, leases[i], cleanupPause)\n", ""},
	}, in: engineTests, tests: "TestRequestWhoseAnswerIsLostLeavesNothingForEver", simulated: true},
	{defect: "6", what: "a request that gave up is not left again when no late copy can come any more", edits: []edit{
		{"lockcore/close.go", "		l.cleanLater(ctx, lease, max(cleanupPause, commandTimeout-time.Since(lost)))\n", "		return\n"},
	}, in: engineTests, tests: "TestLateCopyOfARequestThatGaveUpHoldsNothingForLong", simulated: true},
	{defect: "6", what: "a request gives nothing back when its context has ended", edits: []edit{
		{"lockcore/close.go", "	ctx, cancel := l.detached(ctx)\n	defer cancel()\n", ""},
	}, in: engineTests, tests: "TestRequestThatIsCancelledUnderWayLeavesNothing"},
	{defect: "7", what: "orders of requests that name none come from the process's clock", edits: []edit{
		{"lockcore/acquire.go", "rand.Text()[:16], Order{Attempt: 1}", "rand.Text()[:0], Order{Schedule: uint32(time.Now().Unix()), Attempt: 1}"},
	}, in: engineTests, tests: "TestOrdersComeFromNoClock", simulated: true},
	{defect: "8", what: "a forced release that names a hold ends whatever the lock ID holds", edits: []edit{
		{"lockcore/lockcoretest/spec_end.go", "rules.CutOff(op.LockID)) && e.FirstFence == op.FirstFence", "rules.CutOff(op.LockID))"},
	}, in: engineTests, tests: "TestForceReleaseRepeatedEndsNothingThatWasGrantedSince", simulated: true},
	{defect: "9", what: "a forced release waits for the drain of a holder that is known to be dead", edits: []edit{
		{"lockcore/lockcoretest/spec_end.go", "return op.Now || (", "return ("},
	}, in: engineTests, tests: "TestForceReleaseRepeatedEndsNothingThatWasGrantedSince"},
	{defect: "10", what: "a release that finds nothing is taken for a loss", edits: []edit{
		{"lockcore/end.go", "	if !lost {\n", "	if false {\n"},
	}, in: engineTests, tests: "TestReleaseRepeatedAfterALostAnswerIsNoLoss", simulated: true},
	{defect: "11", what: "each fenced write bars all earlier fences, those of parallel parts too", edits: []edit{
		{"lockcore/fenced.go", "if lease.Bars || least == 0 {", "if true {"},
	}, in: engineTests, tests: "TestParallelPartsOfOneHoldWriteAndEarlierAttemptsDoNot"},
	{defect: "12", what: "a session without end is renewed with every other", edits: []edit{
		{"lockcore/keeper.go", ">= h.ttl/12", ">= Forever"},
	}, in: engineTests, tests: "TestEndlessSessionIsNotRenewedWithEveryShortOne", simulated: true},
	{defect: "12", what: "a session of nothing is looked at without a pause", edits: []edit{
		{"lockcore/keeper.go", "			continue\n		case over(trusted, now):", "			found.pause = 0\n			continue\n		case over(trusted, now):"},
	}, in: engineTests, tests: "TestSessionOfNothingDoesNothing", simulated: true},
	{defect: "12", what: "a session tells of no loss that came after its context had ended", edits: []edit{
		{"lockcore/session.go", "	if s.lost == nil {\n		return nil", "	if s.lost == nil || context.Cause(s.ctx) != error(s.lost) {\n		return nil"},
	}, in: engineTests, tests: "TestLossAfterTheContextEndedIsTold", simulated: true},
	{defect: "12", what: "a session trusts its exclusive lease while a downgrade is under way", edits: []edit{
		{"lockcore/modes.go", "		s.trustShared(lease.Resource)\n", ""},
	}, in: engineTests, tests: "TestDowngradeWithoutAnAnswerLeavesTheSessionSharedUntilItIsKnown", simulated: true},
	{defect: "12", what: "a passing error ends the wait of a request that has queued", edits: []edit{
		{"lockcore/acquire.go", "case last != nil && passes(err):", "case false:"},
	}, in: engineTests, tests: "TestAPassingErrorDoesNotLoseThePlace|TestPassingErrorsCostNoPlaceInTheQueue", simulated: true},
	{defect: "12", what: "an upgrade is refused if the queue is full", edits: []edit{
		{"lockcore/lockcoretest/spec.go", "place < 0 && !ahead && int64", "place < 0 && int64"},
	}, in: specTests, tests: "TestEngineInMemoryConforms/rule 4/upgrades are ahead of the queue", simulated: true},
	{defect: "12", what: "requests with the limit 1 are in no deadlock", edits: []edit{
		{"lockcore/waitgraph.go", "if party.Limit == 1 && !joins {", "if false {"},
	}, in: engineTests, tests: "TestADeadlockOfRequestsWithALimitOfOneEnds", simulated: true},
	{defect: "12", what: "a semaphore of no places is one without limit", edits: []edit{
		{"lockcore/types.go", "		limit = noPlaces\n", "		limit = 0\n"},
	}, in: engineTests, tests: "TestASemaphoreOfNoPlacesIsRefused"},
	{defect: "13", what: "the verdict on a deadlock is a record that later ones push out", edits: []edit{
		{"lockcore/lockcoretest/spec_end.go", "			w.Verdict, w.OverdueAt = op.Reason, rules.LongAgo\n", "			s.remember(rules.Released{LockID: op.LockID, Part: &op.Part, Order: op.Order, Reason: op.Reason})\n			s.doc.Waiters = slices.Delete(s.doc.Waiters, i, i+1)\n			break\n"},
	}, in: engineTests, tests: "TestDeadlocksAreListedWithTheirOwners"},
	{defect: "13", what: "a lease that is replaced in the moment in which it expires is not looked at again", edits: []edit{
		{"lockcore/keeper.go", "			sooner(now) // what replaces the lease in this moment is looked at then\n", ""},
	}, in: engineTests, tests: "TestLeaseThatIsReplacedWhenItExpiresIsLookedAtAgain"},
	{defect: "13", what: "the end of an earlier wait's search puts off the next search", edits: []edit{
		{"lockcore/watch_look.go", "	w.searching = false\n	if", "	w.searching, w.searchAt = false, time.Now().Add(pace.Search)\n	if"},
	}, in: engineTests, tests: "TestASearchOfAnEarlierWaitDoesNotPutOffTheNext"},
	{defect: "13", what: "a claim that lapsed, and whose place is over, is granted past the queue", edits: []edit{
		{"lockcore/lockcoretest/state.go", "c != nil && !c.GivenUp(s.now)", "c != nil"},
	}, in: specTests, tests: "TestEngineInMemoryConforms"},
	{defect: "found by the simulation", what: "a request that was told of a deadlock, after a lost answer, is not left again", edits: []edit{
		{"lockcore/end.go", "if errors.Is(cause, ErrDeadlock) || (!stays && stands) {", "if !errors.Is(cause, ErrDeadlock) && !stays && stands {"},
	}, in: engineTests, tests: "TestLateCopyOfARequestThatWasTakenOutOfTheQueueWaitsForNothing"},
	{defect: "found by the simulation", what: "a forced release of a lease without end waits for nothing", edits: []edit{
		{"lockcore/lockcoretest/state.go", "2*ms(e.TTL) + rules.EndlessTTL", "2 * ms(e.TTL)"},
	}, in: engineTests, tests: "TestHolderWithoutEndIsToldOfAForcedRelease", simulated: true},
	{defect: "found on the servers", what: "giving up a place ends the part that has taken its claim up", edits: []edit{
		{"lockcore/end.go", "		op.Waiting = true\n", ""},
	}, in: engineTests, tests: "TestARequestThatHasTakenItsClaimUpIsNotWaitingAnyMore", simulated: true},
	{defect: "found on the servers", what: "an attempt whose count was reset shares the part of one that lives on", edits: []edit{
		{"lockcore/acquire.go", "rules.Again && req.First && (", "rules.Again && false && ("},
	}, in: engineTests, tests: "TestAFirstRequestDoesNotShareAPart", simulated: true},
	{defect: "found on the servers", what: "a step that wants a resource alone may have run if its saga holds it shared", edits: []edit{
		{"lockcore/answer.go", "(own && rules.Covers(e.Mode, op.Mode))", "own"},
	}, in: engineTests, tests: "TestWhatWasNeverHeldIsToldByMode"},
	{defect: "found on the servers", what: "a janitor gives up the claim of a step that is parked: nobody says whose it is", edits: []edit{
		{"lockcore/status.go", "h.State == StateClaimed {", "false {"},
	}, in: engineTests, tests: "TestStatusNamesTheRequestOfAClaim"},
	{defect: "found by the simulation", what: "a claim for which there is no room any more has its waiter ask again and again", edits: []edit{
		{"lockcore/lockcoretest/spec.go", "	case !op.Queue:\n", "	case !op.Queue || (claim != nil && alive(*claim, s.now)):\n"},
	}, simulated: true},
	{defect: "found by the simulation", what: "a parked upgrade is not told when it may go", edits: []edit{
		{"lockcore/engine/next.go", "ahead := d.holds(p.LockID, func(*Entry) bool { return true }) || d.Surrounds(p)", "ahead := d.Surrounds(p)"},
	}, simulated: true},
	{defect: "found by the simulation", what: "an expired part of the request's own order drains, and its late copy supersedes its repetition", edits: []edit{
		{"lockcore/lockcoretest/spec.go", "e.Order == op.Converts) || !alive(e, s.now)):", "e.Order == op.Converts)):"},
	}, in: specTests, tests: "TestEngineInMemoryConforms", simulated: true},
	{defect: "found by the simulation", what: "whether a late copy may still come is judged when the answer of the leave has come", edits: []edit{
		{"lockcore/close.go", "began.Sub(lost) < commandTimeout {", "time.Since(lost) < commandTimeout {"},
	}, in: engineTests, tests: "TestLateCopyThatCameWhileTheProcessWasStoppedHoldsNothingForLong"},
	{defect: "found by random histories", what: "an expired shared hold stands beside who took the resource alone, since a step of its workflow waits", edits: []edit{
		{"lockcore/lockcoretest/state.go", "live[w.Within] || i < served", "live[w.Within] || i == 0"},
	}, in: specTests, tests: "TestEngineInMemoryConforms"},
	{defect: "found by random histories", what: "an expired shared hold stands beside a claim to be alone, since the same write let its party in to share", edits: []edit{
		{"lockcore/lockcoretest/state.go", "limit = min(limit, limitOf(&waiting[0]))", "limit = to.Limit"},
	}, in: specTests, tests: "TestEngineInMemoryConforms"},
	{defect: "found by random histories", what: "a release, repeated, forgives what was lost since", edits: []edit{
		{"lockcore/lockcoretest/spec_end.go", " && !repeated", " || repeated && false"},
	}, in: specTests, tests: "TestEngineInMemoryConforms"},
	{defect: "found by random histories", what: "a workflow's fence is below that of a step that came between", edits: []edit{
		{"lockcore/lockcoretest/spec.go", " || s.doc.Fence > fence ||", " ||"},
	}, in: specTests, tests: "TestEngineInMemoryConforms"},
	{defect: "found by random histories", what: "a downgrade that comes again ended the hold that it keeps", edits: []edit{
		{"lockcore/lockcoretest/spec.go", "e.LockID == op.LockID && e.Mode == rules.Exclusive", "e.LockID == op.LockID"},
	}, in: specTests, tests: "TestEngineInMemoryConforms"},
	{defect: "turns", what: "a turn that does not come is looked for at the pace of turns", edits: []edit{
		{"lockcore/watch_look.go", "max(turn, time.Since(one.moved))", "turn"},
	}, in: engineTests, tests: "TestATurnThatDoesNotComeIsLookedForLessAndLessOften"},
	{defect: "turns", what: "whoever queues waits inline, however long the holds last", edits: []edit{
		{"lockcore/pace.go", "busy.turn/time.Duration(busy.Position) < pace.Near && busy.turn < max(wait/2, min(wait, pace.Near))", "wait > 0"},
	}, in: engineTests, tests: "TestRequestsBehindLongHoldsDoNotWaitInline|TestRequestsWaitInlineAsLongAsTheirTurnIsNear"},
	{defect: "turns", what: "who is behind more than may wait waits too", edits: []edit{
		{"lockcore/pace.go", " || int64(busy.Position) > l.inline.most.Load()", ""},
	}, in: engineTests, tests: "TestATurnBehindMoreThanMayWaitIsNotWaitedFor"},
	{defect: "turns", what: "a turn is looked for although its predecessor is in the same process", edits: []edit{
		{"lockcore/watch_look.go", "turn > 0 && !here", "turn > 0 && (here || !here)"},
	}, in: engineTests, tests: "TestTurnsWithinOneProcessAreNotLookedFor"},
	{defect: "turns", what: "a saga's hold is expected to end in the process of its step", edits: []edit{
		{"lockcore/watch.go", " && !one.keeps", ""},
	}, in: engineTests, tests: "TestAKeptHoldIsLookedForSinceItMayEndInAnotherProcess"},
	{defect: "turns", what: "a turn that is near is given up after Near, although the place moves", edits: []edit{
		{"lockcore/watch_look.go", "one.position, one.moved = look.Position, time.Now()", "one.position = look.Position"},
	}, in: engineTests, tests: "TestATurnThatComesLaterThanExpectedIsWaitedForWhileThePlaceMoves"},
	{defect: "turns", what: "a turn is waited for in a slot although the place does not move", edits: []edit{
		{"lockcore/watch_look.go", "time.Since(one.moved) >= pace.Near", "time.Since(one.moved) >= 100*pace.Near"},
	}, in: engineTests, tests: "TestATurnThatDoesNotComeIsNotWaitedFor"},
	{defect: "turns", what: "each resource of a request has a MaxWait of its own", edits: []edit{
		{"lockcore/pace.go", "req.MaxWait = max(0, req.MaxWait-time.Since(began))", "_ = began"},
	}, in: engineTests, tests: "TestOneMaxWaitIsForAllResourcesOfARequest"},
	{defect: "turns", what: "what a request takes before expires while it waits for the rest", edits: []edit{
		{"lockcore/acquire.go", "min(req.MaxWait, req.TTL/4)", "min(req.MaxWait, 10*req.TTL)"},
	}, in: engineTests, tests: "TestOneMaxWaitIsForAllResourcesOfARequest"},
	{defect: "turns", what: "each of many parked resources is read by a command of its own", edits: []edit{
		{"lockcore/watch_look.go", "now.Add(pace.Along)", "now.Add(pace.Along * 0)"},
	}, in: engineTests, tests: "TestManyParkedResourcesAreReadByFewCommands"},
	{defect: "turns", what: "any number waits inline", edits: []edit{
		{"lockcore/pace.go", "if i.waits.Add(1) > i.most.Load() {", "if i.waits.Add(1) < 0 {"},
	}, in: engineTests, tests: "TestNoMoreThanAllowedWaitInline"},
	{defect: "turns", what: "parked requests are called up whose turn is not near", edits: []edit{
		{"lockcore/pace.go", "turn > pace.CallUp ||", "turn > 1000*pace.CallUp ||"},
	}, in: engineTests, tests: "TestParkedRequestsAreCalledUpBeforeTheirTurn"},
	{defect: "commits", what: "a run that takes over forgets which request began the hold", edits: []edit{
		{"lockcore/lockcoretest/spec_label.go", "e.Label, e.Fence, e.Order, e.HandedOver = op.Label, fence, 0, false", "e.Label, e.Fence, e.Order, e.FirstOrder, e.HandedOver = op.Label, fence, 0, 0, false"},
	}, in: specTests, tests: "TestEngineInMemoryConforms", simulated: true},
	{defect: "commits", what: "a commit of one resource asks for nothing", edits: []edit{
		{"lockcore/lockcoretest/spec_end.go", "op.Used > 0 && !s.doc.Keeps", "op.Used < 0 && !s.doc.Keeps"},
	}, in: engineTests, tests: "TestACommitOfOneResourceEndsNothingThatBeganLater", simulated: true},
	{defect: "commits", what: "a commit takes a hold that began after the use for the one that was used", edits: []edit{
		{"lockcore/commit.go", "k != nil && k.FirstOrder <= use.By.number()", "k != nil"},
	}, in: engineTests, tests: "TestACommitFindsAHoldThatWasTakenAgain", simulated: true},
	{defect: "commits", what: "a commit that has begun to release is not known by that", edits: []edit{
		{"lockcore/commit.go", "decided = decided || docs[i].HasCommitted", "decided = decided && docs[i].HasCommitted"},
	}, in: engineTests, tests: "TestACommitThatHadBegunToReleaseGoesOn", simulated: true},
	{defect: "several", what: "a request takes its resources in the order in which it names them", edits: []edit{
		{"lockcore/acquire.go", "int { return strings.Compare(a.Name, b.Name) }", "int { return 0 * strings.Compare(a.Name, b.Name) }"},
	}, simulated: true},
	{defect: "several", what: "a command for several resources goes on beyond one that somebody has", edits: []edit{
		{"lockcore/lockcoretest/engine.go", "after.Last.Outcome != rules.Granted {\n			break\n", "after.Last.Outcome != rules.Granted {\n			continue\n"},
	}, in: specTests, tests: "TestEngineInMemoryConforms", simulated: true},
	{defect: "several", what: "what one command took of several, unheard, is not given back", edits: []edit{
		{"lockcore/end.go", "	leases = append(leases, req.stillOpen()...)\n", ""},
	}, in: engineTests, tests: "TestNothingIsLeftOfSeveralByWhoGaveUp", simulated: true},
	{defect: "several", what: "a first request takes what its own command was granted unheard for another's", edits: []edit{
		{"lockcore/acquire.go", "issued := req.together.asked(op.Resource)", "var issued time.Time"},
	}, in: engineTests, tests: "TestSeveralWhoseAnswerIsLostAreAskedForOneByOne"},
	{defect: "rechecks", what: "each recheck of a long queue reads it", edits: []edit{
		{"lockcore/glance.go", "if known && ", "if known && false && "},
	}, in: engineTests, tests: "TestRechecksOfALongQueueShareWhatTheyRead"},
	{defect: "hot loops", what: "what failed is asked again without a pause", edits: []edit{
		{"lockcore/acquire.go", "min(time.Second<<min(failures, 5), 30*time.Second)", "time.Millisecond"},
	}, simulated: true},
}
