package main

// productMutants are defects that Lockstep once had outside of the engine, each of which a Go test finds. They have no page but
// docs/defects.md.
var productMutants = []mutant{
	// Workflow side. Their tests run workflows on a Temporal server.
	{what: "an activity is awaited after the workflow function has returned", in: interceptors, tests: "TestCommit_AsksOnlyAboutOldLocks", edits: []edit{
		{"internal/runstate/state.go", "\t\t\tc.closed = true\n\t\t\ts.addDue", "\t\t\t_ = s.verifyAged(ctx, ctx, []*Scope{c})\n\t\t\tc.closed = true\n\t\t\ts.addDue"},
	}},
	{what: "a commit trusts a lock of any age", in: interceptors, tests: "TestCommit_AsksOnlyAboutOldLocks", edits: []edit{
		{"internal/runstate/verify.go", "> wire.VerifyAfter()", "< 0"},
	}},
	{what: "a step of another saga counts as a use of this saga's lock", in: interceptors, tests: "TestCommit_AnotherSagaUsedTheLockLater_Asks", edits: []edit{
		{"internal/runstate/verify.go", "o.uses[i].Schedule >= since && ", ""},
		{"internal/runstate/step.go", "\t\tif !t.Guard.Reacquire && r.HeldSince > 0 {\n", "\t\tif !t.Guard.Reacquire {\n"},
	}},
	{what: "a compensation that takes a lock again counts as a use of it", in: interceptors, tests: "TestCommit_InnerCompensationTookTheLockAgain_Asks", edits: []edit{
		{"internal/runstate/step.go", "\t\tif !t.Guard.Reacquire || t.scope.uses.heldSince(r.Name) == 0 {\n", "\t\tif true {\n"},
	}},
	{what: "Locks that are requested at once are not split over workflow tasks", in: worker, tests: "TestSizes_ExceedWhatTheServerAccepts_AreSplit/Locks", edits: []edit{
		{"internal/runstate/lock.go", "\t\tsize: sizeOf(t.Guard.Resources),\n", ""},
	}},
	{what: "a step's report of another workflow's loss is taken for its own", in: interceptors, tests: "TestSaga_StepReports", edits: []edit{
		{"internal/wire/errors.go", "lost, ok = StepLockError(err)", "lost, ok = LockError(err)"},
		{"internal/wire/errors.go", "\tlock := StepLockError(err)\n", "\tlock := LockError(err)\n"},
	}},
	{what: "Saga.Step accepts the context of the saga around it", in: interceptors, tests: "TestSagaStep_ContextOfTheOuterSaga_IsRefused", edits: []edit{
		{"workflows/saga.go", " || !runstate.SagaFrom(ctx).IsWithin(s.nested) {", " {"},
	}},
	{what: "a loss that a wait has found does not prevent the commit", in: interceptors, tests: "TestCommit_WaitFoundTheLoss_IsRefused", edits: []edit{
		{"internal/runstate/step.go", "\t\t\tt.noteLoss(err)\n\t\t\treturn err\n", "\t\t\treturn err\n"},
	}},
	{what: "a saga that commits starts further steps under locks of their own", in: interceptors, tests: "TestSagaStep_SagaCommits_HoldsForTheSagaOrIsRefused", edits: []edit{
		{"internal/runstate/step.go", " || c.scope != nil && c.scope.committing)", ")"},
	}},
	{what: "a Lock that is refused after a wait keeps what it was granted", in: interceptors, tests: "TestLock_RefusedAfterAWait_ReleasesWhatItGot", edits: []edit{
		{"internal/runstate/lock.go", "if g.Try && len(g.Resources) == 1 && errors.Is(err, lockcore.ErrBusy) {", "if errors.Is(err, lockcore.ErrInvalid) {"},
	}},
	{what: "a saga under the context of one that was undone is refused", in: interceptors, tests: "TestSaga_ContextOfAnUndoneSaga_IsItsOwn", edits: []edit{
		{"internal/runstate/saga.go", "\tfor saga.outer != nil && saga.outer.ended {\n", "\tfor saga.outer != nil && saga.outer.ended && false {\n"},
	}},
	{what: "own activities do not have the values of the saga's steps", in: worker, tests: "TestOwnActivities_SagasFunctionSetsTheValue_AreScheduled", edits: []edit{
		{"internal/runstate/saga.go", "size: size, values: s.ctx,", "size: size,"},
	}},
	{what: "a commit trusts an answer of any age", in: interceptors, tests: "TestVerify_LateAnswer_IsAskedAgain", edits: []edit{
		{"internal/runstate/verify.go", "\tasked := workflow.Now(ctx)\n", "\tasked := workflow.Now(ctx).Add(time.Hour)\n"},
	}},
	{what: "a commit does not wait for sagas inside it that begin to be undone while it verifies", in: interceptors, tests: innerUndone, edits: []edit{
		{"internal/runstate/scope.go", "|| !saga.undoesInside() {", "|| true {"},
	}},
	{what: "a commit does not wait for sagas inside it that are being undone", in: interceptors, tests: innerUndone, edits: []edit{
		{"internal/runstate/scope.go", "\t\tsaga.AwaitInner(ctx)\n", ""}, {"internal/runstate/scope.go", "|| !saga.undoesInside() {", "|| true {"},
	}},
	{what: "a compensation under a saga that is about to commit has locks of its own", in: interceptors, tests: innerUndone, edits: []edit{
		{"internal/runstate/scope.go", "|| compensating)", "|| compensating && false)"},
	}},
	{what: "a saga releases its locks while one inside it is being undone", in: interceptors, tests: innerUndone, edits: []edit{
		{"workflows/compensate.go", "for s.nested.AwaitInner(ctx); len(s.pending) > 0; s.nested.AwaitInner(ctx) {", "for len(s.pending) > 0 {"},
	}},
	{what: "a second release of a Lock does not wait for the first", in: interceptors, tests: "TestLock_ReleasedTwiceAtOnce_BothLearnTheOutcome", edits: []edit{
		{"internal/runstate/lock.go", "{ return l.step.scope.closed })", "{ return true })"},
	}},
	{what: "a saga inside another one that continues as new is not undone with it", in: interceptors, tests: "TestInnerSaga_ContinuesAsNewAndOuterFails_IsUndone", edits: []edit{
		{"workflows/saga.go", "if err == nil || continuesAsNew(err) {\n\t\tif", "if err == nil {\n\t\tif"},
	}},
	{what: "an own activity has the session of the step", in: "./internal/runstate", tests: "TestOwnContext_HidesSessionAndOptions", edits: []edit{
		{"internal/runstate/own.go", "; session {\n", "; session && key == nil {\n"},
	}},
	{what: "a release of the run before ends what the next run holds", in: lockactivities, tests: "TestRelease_HandedOver_EndsOnlyRequestsOfTheRunBefore", edits: []edit{
		{"internal/currentrun/release.go", "\tif p.Handed { //", "\tif p.Handed && false { //"},
	}},
	{what: "a Lock is taken by a local activity", in: worker, tests: "TestLock_TaskIsLost_HoldsNothing", edits: []edit{
		{"internal/runstate/lock.go", "\treturn t.scope.state.await(ctx, o, result, t.mustStop)\n", "\treturn workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{\n\t\tScheduleToCloseTimeout: attemptTimeout,\n\t}), o.name, o.params).Get(ctx, result)\n"},
	}},
	{what: "a release is a local activity", in: worker, tests: "TestLock_ReleasingTaskLost_StepRunsUnderIt", edits: []edit{
		{"internal/runstate/release.go", "\tfuture, _ := s.schedule(e.ctx, e.own)\n", "\tfuture := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(e.ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: attemptTimeout}), e.name, e.params)\n"},
	}},
	{what: "a closing run is released before it has closed", in: worker, tests: "TestRun_TaskRefused_StillHoldsItsLocks", edits: []edit{
		{"interceptors/closing.go", "\t\tlast, err := c.closeOf(ctx, to, run)\n", "\t\tlast, err := &historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED}, error(nil)\n"},
	}},
	{what: "the compensations of a saga inside a saga are dropped", in: worker, tests: "TestNestedSaga_OuterFails_IsUndoneWithIt", edits: []edit{
		{"workflows/saga.go", "case s.outer != nil && len(s.pending) > 0:", "case s.outer != nil && len(s.pending) < 0:"},
	}},
	{what: "the arguments of a compensation are encoded when it runs", in: worker, tests: "TestUndo_ArgumentsChangedLater_KeepsThoseOfItsStep", edits: []edit{
		{"workflows/saga.go", "runstate.WithUndoing(ctx, undone), undo, encoded)", "runstate.WithUndoing(ctx, undone), undo, append(encoded[:0:0], args...))"},
	}},
	{what: "a step that has waited is scheduled with changed arguments", in: worker, tests: "TestStep_ArgumentsChangedWhileWaiting_KeepsItsOwn", edits: []edit{
		{"interceptors/workflow.go", "\targs = runstate.Encode(ctx, activityType, args) // ", "\t_ = runstate.Encode(ctx, activityType, args) // "},
	}},
	{what: "a saga that fails does not wait for the steps that may still run", in: worker, tests: "TestCompensation_StepStillRuns_WaitsForIt", edits: []edit{
		{"workflows/saga.go", "\t\ts.nested.Bar(ctx)\n", ""},
	}},
	{what: "a saga does not wait for attempts that timed out and were repeated", in: worker, tests: "TestCompensation_StepStillRuns_WaitsForIt/repeated", edits: []edit{
		{"interceptors/workflow.go", "\tg.step.Scheduled(ctx)\n", ""},
	}},
	{what: "a saga that is undone starts further steps", in: worker, tests: "TestSaga_StepDuringUndo_IsRefused", edits: []edit{
		{"internal/runstate/step.go", "if !c.compensating && (c.saga.IsUndoing() ||", "if !c.compensating && (c.saga.IsUndoing() && false ||"},
	}},
	{what: "in a run that continues a hand-over, a missing lock is no loss", in: worker, tests: "TestSagaVerify_StepOfNextRunRanWithoutPlugin_IsLost", edits: []edit{
		{"internal/runstate/verify.go", "Inherits: s.wasReset, ", "Inherits: s.wasReset || s.continues, "},
	}},
	{what: "the end of a run releases what the next run has taken", in: interceptors, tests: "TestCloser_NextRunHolds_ReleasesOnlyWhatWasInherited", edits: []edit{
		{"internal/currentrun/release.go", "if delete(held, except); err != nil", "if err != nil"},
	}},
	{what: "a saga under a context from outside the saga around it runs", in: interceptors, tests: "TestStep_InASagaWithOuterContext_IsRefused", edits: []edit{
		{"workflows/saga.go", "cmp.Or(opts.check(), runstate.CheckSaga(ctx))", "opts.check()"},
	}},
	{what: "a release that a reset repeats ends nothing of the earlier run", in: "./internal/lockactivities", tests: "TestRelease_RunThatDecidedItWasReset_EndsItsRequestsToo", edits: []edit{
		{"internal/currentrun/release.go", "p.Run != \"\" && p.Run != own.RunID {", "p.Run != \"\" && p.Run != own.RunID && false {"},
	}},
	{what: "the waits of a failed saga's steps are not cancelled", in: worker, tests: "TestNestedSaga_FailsWhileWaiting_StepDoesNotRun", edits: []edit{
		{"internal/runstate/wait.go", " || t.saga.IsUndoing() && !t.Guard.NeverVictim", ""},
	}},
	{what: "MaxWait counts the time in which the step ran", in: worker, tests: "TestMaxWait_RunBetweenWaits_DoesNotCount", edits: []edit{
		{"internal/runstate/wait.go", "t.waitingSince.Add(t.used)", "t.waitingSince.Add(0 * t.used)"},
	}},
	{what: "a worker with another lock database runs the step", in: worker, tests: "TestGuard_WorkerHasAnotherLockDatabase_IsRefused", edits: []edit{
		{"interceptors/activity_inbound.go", "CheckCollection(ctx, a.locker, guard.Collection)", "CheckCollection(ctx, a.locker, \"\")"},
	}},

	// Activity side.
	{what: "a step that returns after its TTL counts as successful", in: interceptors, tests: "TestStep_Ends_LeavesAndReportsIt", edits: []edit{
		{"interceptors/activity_inbound.go", "&lost) || len(expired) == 0 {", "&lost) || len(expired) >= 0 {"},
	}},
	{what: "a wake-up for a granted hold is sent once", in: interceptors, tests: "TestWake_ServerIsAway_HoldIsToldAgain", edits: []edit{
		{"interceptors/waker.go", "\t\tif u.HoldFence > 0 {\n\t\t\tw.nextAttempt(u)\n\t\t}\n", ""},
	}},
	{what: "after a reset, a step that ran counts as one that never did", in: interceptors, tests: "TestPartThatNeverRan_OnlyIfCertain", edits: []edit{
		{"interceptors/activity_inbound.go", "\tcase wasReset:\n", "\tcase wasReset && false:\n"},
	}},
	{what: "a negative MaxWait in a guard means no bound", in: "./internal/wire", tests: "TestDecodeGuard_NegativeDuration_IsRefused", edits: []edit{
		{"internal/wire/guard.go", "\t\tCheckNotNegative(\"maxWait\", g.MaxWait, asLongAsItTakes),\n", ""},
	}},
	{what: "a valid request for a name hides an invalid one", in: "./internal/wire", tests: "TestMerge_InvalidRequest_IsKept", edits: []edit{
		{"internal/wire/guard.go", "\tcase isInvalid(a):\n\tcase isInvalid(b):\n", "\tcase isInvalid(a) && isInvalid(b):\n"},
	}},

	// The janitor.
	{what: "the janitor keeps what a step of a reset run has kept", in: janitor, tests: "TestRound_|TestRun_", edits: []edit{
		{"internal/janitor/round.go", "case found.verdict == inherited && step != \"\":", "case false:"},
	}},
	{what: "the janitor takes one wait of a run for another", in: janitor, tests: "TestRound_AbandonedWait_IsWithdrawn", edits: []edit{
		{"internal/janitor/ask.go", "p.id == wire.WaitID(order.Schedule)\n", "p.id == wire.WaitID(order.Schedule) || p.id != \"\"\n"},
	}},
	{what: "the janitor keeps what a run that continued as new has left", in: janitor, tests: "TestAsk_RealRuns_GivesVerdict", edits: []edit{
		{"internal/janitor/ask.go", "\treturn !began.Before(first), nil\n", "\treturn first.IsZero() || !began.IsZero(), nil\n"},
	}},

	// The lock library.
	{what: "a part that has drained is listed for ever", in: engineTests, tests: "TestStatus_DrainedPart_IsNotListed", edits: []edit{
		{"lockcore/party/status.go", "e.State == rules.StateDraining && s.ExpiresIn <= 0:", "false:"},
	}},
	{what: "a lock that another process has freed is noticed late", in: engineTests, tests: "TestWatchFor_FreedElsewhere_WakesWithinTwoSeconds", edits: []edit{
		{"lockcore/party/watch.go", "compares := !now.Before(w.compareAt)", "compares := now.IsZero()"},
	}},

	// Commands.
	{what: "a lock ID with a slash counts as a workflow's", in: contention, tests: "TestHolds_PlainLockID_HasNoWorkflow", edits: []edit{
		{"internal/cli/contention/analyze.go", "if err != nil || !wire.IsNamespaceID(of.Namespace) {", "if err != nil {"},
	}},
	{what: "a step is blamed for what another step of its workflow waits for", in: contention, tests: "TestRoots_StepLockID_IgnoresOtherSteps|TestRoots_WaitForAnotherStep_IsNotACycle|TestConclusion_StepLockID_IgnoresOtherSteps", edits: []edit{
		{"internal/cli/contention/waits.go", "\tif h.ofStep {\n\t\treturn w.LockID == h.LockID\n\t}\n", ""},
		{"internal/cli/contention/waits.go", "\tif h.ofStep {\n\t\twaits = a.byStep[h.LockID]\n\t}\n", ""},
	}},
	{what: "an interrupt during the analysis is ignored", in: contention, tests: "TestAnalyze_Cancelled_ReturnsTheCause", edits: []edit{
		{"internal/cli/contention/analyze.go", "bool { return a.ctx.Err() != nil }", "bool { return false }"},
	}},
	{what: "why shows what another party of the same name has lost", in: inspect, tests: "TestWhy_SameName_ReportsOwnLossesOnly", edits: []edit{
		{"internal/cli/inspect/why.go", "(other.Namespace == \"\" || p.Namespace == other.Namespace)", "(other.Namespace == \"\" || p.Namespace != \"\")"},
	}},
	{what: "a refusal names a command with any text as the collection's ID", in: lockactivities, tests: "TestActivities_HostileCollectionID_NamesNoCommand", edits: []edit{
		{"internal/currentrun/ask.go", "\tif !isCollectionID(workflows) {", "\tif isCollectionID(workflows) && own == workflows {"},
	}},
	{what: "a list that a command prints can begin a line", in: tables, tests: "TestFprintf_HostileArguments_StayOnTheirLine", edits: []edit{
		{"internal/cli/table/plain.go", "if _, isNumber := arg.(int); !isNumber {", "if _, isText := arg.(string); isText {"},
	}},
	{what: "the doctor calls a standalone server a warning", in: inspect, tests: "TestDoctor_ReplicaSet_SeverityByKindOfServer", edits: []edit{
		{"internal/cli/inspect/doctor.go", "finding(Broken, \"a standalone server, in no replica set\"", "finding(Warning, \"a standalone server, in no replica set\""},
	}},
}

// Packages of tests.
const (
	worker         = "./worker"
	interceptors   = "./interceptors"
	innerUndone    = "TestOuterSaga_InnerSagaIsBeingUndone_Waits"
	janitor        = "./internal/janitor"
	contention     = "./internal/cli/contention"
	inspect        = "./internal/cli/inspect"
	tables         = "./internal/cli/table"
	lockactivities = "./internal/lockactivities"
)
