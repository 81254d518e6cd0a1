package main

const header = `# What finds the defects that lockcore had

Each row is a defect that the lock engine once had, put back on purpose by a change of its source. The last column is the first
seed of the simulation in ` + "`lockcore/lockcoretest/simulation`" + ` that finds it, with the invariant that it breaks; or, for
what no simulation of Lockers can see, the test that does. Rules of single operations have a page of their own,
[mutants](mutants.md).

This page is written by

    go run ./lockcore/lockcoretest/simulation/mutants

| defect | what was changed | what finds it |
| --- | --- | --- |
`

// mutant is a defect. It has edits, or a test that finds what cannot be simulated.
type mutant struct {
	defect, what string
	edits        []edit
	// test is "TestName in path/of/file_test.go".
	test string
}

// edit replaces the one place in a file that has the old text.
type edit struct{ file, old, new string }

// mutants are numbered as the defects were when they were found.
var mutants = []mutant{
	{defect: "1", what: "a request whose lock ID holds waits, for the deadlock search, for those ahead of it", edits: []edit{
		{"lockcore/waitgraph.go", "joins := d.Covered(party)", "joins := false"},
	}},
	{defect: "1", what: "a request is not called when its lock ID comes to hold", edits: []edit{
		{"lockcore/watch.go", " || d.Joins(one.request.Party())", ""},
		{"lockcore/engine/next.go", "{ return d.Covered(p) && !d.runsBeside(p) }", "{ return false }"},
		{"lockcore/engine/next.go", "(covered && !d.runsBeside(p)) ||", "(false && covered) ||"},
	}},
	{defect: "2", what: "no watcher writes a document whose head is dead", edits: []edit{
		{"lockcore/watch_look.go", "q.Due() && w.locker.settle(ctx, name)", "q.Due() && false"},
	}},
	{defect: "3", what: "what a batch did not renew is not renewed alone", edits: []edit{
		{"lockcore/renew.go", "				alone = append(alone, i)\n			}\n		}\n	}", "				apply(i, renewResult{leases[i], &LostError{Resource: leases[i].Resource, LockID: leases[i].LockID, Part: leases[i].Part, Order: leases[i].Order}})\n			}\n		}\n	}"},
	}},
	{defect: "4", what: "a collection in the layout of others is written", test: "TestAnotherLayoutIsRefused in lockcore/layout_test.go"},
	{defect: "6", what: "what a request left that gave up is not cleaned up later", edits: []edit{
		{"lockcore/cleanup.go", "			l.cleaner.later(ctx, lease, cleanupPause)\n", ""},
	}},
	{defect: "11", what: "parallel parts of one hold refuse each other's fenced writes", test: "TestParallelPartsOfOneHoldWriteAndEarlierAttemptsDoNot in lockcore/fenced_test.go"},
	{defect: "12", what: "a session without end is renewed with every other", edits: []edit{
		{"lockcore/session_renewal.go", "return shortest / 12", "return Forever"},
	}},
	{defect: "12", what: "a session of nothing is looked at without a pause", edits: []edit{
		{"lockcore/keeper.go", "			continue\n		case over(trusted, now):", "			found.pause = 0\n			continue\n		case over(trusted, now):"},
	}},
	{defect: "12", what: "a session tells of no loss that came after its context had ended", edits: []edit{
		{"lockcore/session.go", "	if s.lost == nil {\n		return nil", "	if s.lost == nil || context.Cause(s.ctx) != error(s.lost) {\n		return nil"},
	}},
	{defect: "12", what: "a session trusts its exclusive lease while a downgrade is under way", edits: []edit{
		{"lockcore/session.go", "		s.trustShared(lease.Resource)\n", ""},
	}},
	{defect: "12", what: "a passing error ends the wait of a request that has queued", edits: []edit{
		{"lockcore/wait.go", "case last != nil && passes(err):", "case false:"},
	}},
	{defect: "12", what: "an upgrade is refused if the queue is full", edits: []edit{
		{"lockcore/lockcoretest/spec.go", "place < 0 && !ahead && int64", "place < 0 && int64"},
	}},
	{defect: "12", what: "requests with the limit 1 are in no deadlock", edits: []edit{
		{"lockcore/waitgraph.go", "if party.Limit == 1 {", "if false {"},
	}},
	{defect: "13", what: "a claim that lapsed, and whose place is over, is granted past the queue", edits: []edit{
		{"lockcore/lockcoretest/state.go", "c != nil && !c.GivenUp(s.now)", "c != nil"},
	}},
	{defect: "13", what: "a read is shared for ever", edits: []edit{
		{"lockcore/watch_read.go", "mine == nil || time.Since(mine.sent) >= age ||", "mine == nil ||"},
	}},
	{defect: "found by the simulation", what: "a claim for which there is no room any more has its waiter ask again and again", edits: []edit{
		{"lockcore/lockcoretest/spec.go", "	case !op.Queue:\n", "	case !op.Queue || (claim != nil && alive(*claim, s.now)):\n"},
	}},
}
