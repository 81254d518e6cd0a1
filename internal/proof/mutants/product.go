package main

// productMutants are defects that Lockstep once had outside of the engine, each of which a Go test finds. They have no page:
// internal/tools/defects lists them.
var productMutants = []mutant{
	// Workflow side. Their tests run workflows on a Temporal server.
	{what: "an activity is awaited after the workflow function has returned", in: interceptors, tests: "TestCommit_AsksOnlyAboutOldLocks", edits: []edit{
		{runstate, "State.End", "assign 4", "_ = s.verifyAged(ctx, ctx, c); $"},
	}},
	{what: "a commit trusts a lock of any age", in: interceptors, tests: "TestCommit_AsksOnlyAboutOldLocks", edits: []edit{{runstate, "State.verifyAged", "if 3 cond", "$1 < 0"}}},
	{what: "a step of another saga counts as a use of this saga's lock", in: interceptors, tests: "TestCommit_AnotherSagaUsedTheLockLater_Asks", edits: []edit{
		{runstate, "State.noteHeld", "&& 2", "drop"},
		{runstate, "Step.noteUse", "&& 2", "drop"},
	}},
	{what: "a compensation that takes a lock again counts as a use of it", in: interceptors, tests: "TestCommit_InnerCompensationTookTheLockAgain_Asks", edits: []edit{
		{runstate, "Step.noteUse", "if 2 cond", "true"},
	}},
	{what: "Locks that are requested at once are not split over workflow tasks", in: worker, tests: "TestSizes_ExceedWhatTheServerAccepts_AreSplit/Locks", edits: []edit{
		{runstate, "Lock.ask", "elem 4", "drop"},
	}},
	{what: "a step's report of another workflow's loss is taken for its own", in: interceptors, tests: "TestSaga_StepReports", edits: []edit{
		{wire, "StepLoss", "fun", "LockError"},
		{wire, "TypedError", "fun", "LockError"},
	}},
	{what: "Saga.Step accepts the context of the saga around it", in: interceptors, tests: "TestSagaStep_ContextOfTheOuterSaga_IsRefused", edits: []edit{{workflows, "Saga.Step", "|| 2", "drop"}}},
	{what: "a loss that a wait has found does not prevent the commit", in: interceptors, tests: "TestCommit_WaitFoundTheLoss_IsRefused", edits: []edit{{runstate, "Step.finish", "if 3 stmt", "drop"}}},
	{what: "a saga that commits starts further steps under locks of their own", in: interceptors, tests: "TestSagaStep_SagaCommits_HoldsForTheSagaOrIsRefused", edits: []edit{
		{runstate, "stepContext.check", "|| 2", "drop"},
	}},
	{what: "a Lock that is refused after a wait keeps what it was granted", in: interceptors, tests: "TestLock_RefusedAfterAWait_ReleasesWhatItGot", edits: []edit{
		{runstate, "State.Lock", "if 2 cond", "errors.Is(err, lockcore.ErrInvalid)"},
	}},
	{what: "a saga under the context of one that was undone is refused", in: interceptors, tests: "TestSaga_ContextOfAnUndoneSaga_IsItsOwn", edits: []edit{{runstate, "WithSaga", "&& 2", "$ && false"}}},
	{what: "own activities do not have the values of the saga's steps", in: worker, tests: "TestOwnActivities_SagasFunctionSetsTheValue_AreScheduled", edits: []edit{
		{runstate, "Saga.Bar", "if 2 init value", "state.awaitAll(ctx, ctx, all)"},
	}},
	{what: "a commit trusts an answer of any age", in: interceptors, tests: "TestVerify_LateAnswer_IsAskedAgain", edits: []edit{{runstate, "State.verify", "assign", "$.Add(time.Hour)"}}},
	{what: "a commit does not wait for sagas inside it that begin to be undone while it verifies", in: interceptors, tests: innerUndone, edits: []edit{{runstate, "Scope.verifyLast", "|| 2", "true"}}},
	{what: "a commit does not wait for sagas inside it that are being undone", in: interceptors, tests: innerUndone, edits: []edit{
		{runstate, "Scope.verifyLast", "call 2", "drop"},
		{runstate, "Scope.verifyLast", "|| 2", "true"},
	}},
	{what: "a compensation under a saga that is about to commit has locks of its own", in: interceptors, tests: innerUndone, edits: []edit{{runstate, "Scope.admits", "|| 2", "$ && false"}}},
	{what: "a saga releases its locks while one inside it is being undone", in: interceptors, tests: innerUndone, edits: []edit{
		{workflows, "Saga.compensate", "for init", "drop"},
		{workflows, "Saga.compensate", "for post", "drop"},
	}},
	{what: "a second release of a Lock does not wait for the first", in: interceptors, tests: "TestLock_ReleasedTwiceAtOnce_BothLearnTheOutcome", edits: []edit{
		{runstate, "Lock.outcome", "func value", "true"},
	}},
	{what: "a saga inside another one that continues as new is not undone with it", in: interceptors, tests: "TestInnerSaga_ContinuesAsNewAndOuterFails_IsUndone", edits: []edit{
		{workflows, "Saga.run", "|| 2", "drop"},
	}},
	{what: "an own activity has the session of the step", in: runstate, tests: "TestOwnContext_HidesSessionAndOptions", edits: []edit{
		{runstate, "ownContext.Value", "if 2 cond", "$ && key == nil"},
	}},
	{what: "a release of the run before ends what the next run holds", in: activities, tests: "TestRelease_HandedOver_EndsOnlyRequestsOfTheRunBefore", edits: []edit{
		{currentrun, "Release", "if cond", "$ && false"},
	}},
	{what: "a Lock is taken by a local activity", in: worker, tests: "TestLock_TaskIsLost_HoldsNothing", edits: []edit{
		{runstate, "Lock.ask", "assign 7 value", "workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions($1, workflow.LocalActivityOptions{ ScheduleToCloseTimeout: attemptTimeout }), $3.name, $3.params).Get($1, $4)"},
	}},
	{what: "a release is a local activity", in: worker, tests: "TestLock_ReleasingTaskLost_StepRunsUnderIt", edits: []edit{
		{runstate, "State.send", "assign 2", "future := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(e.ctx, workflow.LocalActivityOptions{ScheduleToCloseTimeout: attemptTimeout}), e.name, e.params)"},
	}},
	{what: "a closing run is released before it has closed", in: worker, tests: "TestRun_TaskRefused_StillHoldsItsLocks", edits: []edit{
		{interceptors, "closer.await", "assign 2 value", "&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED}, error(nil)"},
	}},
	{what: "the compensations of a saga inside a saga are dropped", in: worker, tests: "TestNestedSaga_OuterFails_IsUndoneWithIt", edits: []edit{{workflows, "Saga.succeed", "case 4 && 2", "op <"}}},
	{what: "the arguments of a compensation are encoded when it runs", in: worker, tests: "TestUndo_ArgumentsChangedLater_KeepsThoseOfItsStep", edits: []edit{
		{workflows, "Saga.Step", "func arg 3", "append($[:0:0], args...)"},
	}},
	{what: "a step that has waited is scheduled with changed arguments", in: worker, tests: "TestStep_ArgumentsChangedWhileWaiting_KeepsItsOwn", edits: []edit{
		{runstate, "Step.Run", "stmt target", "_"},
	}},
	{what: "a saga that fails does not wait for the steps that may still run", in: worker, tests: "TestCompensation_StepStillRuns_WaitsForIt", edits: []edit{{workflows, "Saga.undo", "if stmt", "drop"}}},
	{what: "a saga does not wait for attempts that timed out and were repeated", in: worker, tests: "TestCompensation_StepStillRuns_WaitsForIt/repeated", edits: []edit{
		{runstate, "Step.Run", "stmt 5", "drop"},
	}},
	{what: "a saga that is undone starts further steps", in: worker, tests: "TestSaga_StepDuringUndo_IsRefused", edits: []edit{{runstate, "stepContext.check", "|| 1", "$ && false"}}},
	{what: "in a run that continues a hand-over, a missing lock is no loss", in: worker, tests: "TestSagaVerify_StepOfNextRunRanWithoutPlugin_IsLost", edits: []edit{
		{runstate, "State.verify", "func elem 2 value", "$ || $1.continues"},
	}},
	{what: "the end of a run releases what the next run has taken", in: interceptors, tests: "TestCloser_NextRunHolds_ReleasesOnlyWhatWasInherited", edits: []edit{
		{currentrun, "Release", "stmt 9 init", "drop"},
	}},
	{what: "a saga under a context from outside the saga around it runs", in: interceptors, tests: "TestStep_InASagaWithOuterContext_IsRefused", edits: []edit{{workflows, "RunSaga", "if 2 init value", "error(nil)"}}},
	{what: "a release that a reset repeats ends nothing of the earlier run", in: activities, tests: "TestRelease_RunThatDecidedItWasReset_EndsItsRequestsToo", edits: []edit{
		{currentrun, "Release", "if 3 && 2", "$ && false"},
	}},
	{what: "the waits of a failed saga's steps are not cancelled", in: worker, tests: "TestNestedSaga_FailsWhileWaiting_StepDoesNotRun", edits: []edit{{runstate, "Step.mustStop", "|| 3", "drop"}}},
	{what: "MaxWait counts the time in which the step ran", in: worker, tests: "TestMaxWait_RunBetweenWaits_DoesNotCount", edits: []edit{{runstate, "Step.recordBusy", "case 2 arg", "0 * $"}}},
	{what: "a worker with another lock database runs the step", in: worker, tests: "TestGuard_WorkerHasAnotherLockDatabase_IsRefused", edits: []edit{
		{interceptors, "activityInbound.checkCollection", "arg 3", `""`},
	}},

	// Activity side.
	{what: "a step that returns after its TTL counts as successful", in: interceptors, tests: "TestStep_Ends_LeavesAndReportsIt", edits: []edit{
		{interceptors, "activityInbound.findLoss", "|| 2", "$1 >= $2"},
	}},
	{what: "a wake-up for a granted hold is sent once", in: interceptors, tests: "TestWake_ServerIsAway_HoldIsToldAgain", edits: []edit{{interceptors, "waker.wake", "if 3", "drop"}}},
	{what: "after a reset, a step that ran counts as one that never did", in: interceptors, tests: "TestPartThatNeverRan_OnlyIfCertain", edits: []edit{
		{interceptors, "partThatNeverRan", "case cond", "$ && false"},
	}},
	{what: "a negative MaxWait in a guard means no bound", in: wire, tests: "TestDecodeGuard_NegativeDuration_IsRefused", edits: []edit{{wire, "Guard.check", "return 2 arg 3", "drop"}}},
	{what: "a valid request for a name hides an invalid one", in: wire, tests: "TestMerge_InvalidRequest_IsKept", edits: []edit{
		{wire, "Stronger", "case", "drop"},
		{wire, "Stronger", "case 2 cond", "isInvalid(a) && $"},
	}},

	// The janitor.
	{what: "the janitor keeps what a step of a reset run has kept", in: janitor, tests: "TestRound_|TestRun_", edits: []edit{{janitor, "round.extendOpen", "cond", "false"}}},
	{what: "the janitor takes one wait of a run for another", in: janitor, tests: "TestRound_AbandonedWait_IsWithdrawn", edits: []edit{{janitor, "pendingActivity.mayAwait", "|| 2", `$ || $1 != ""`}}},
	{what: "the janitor keeps what a run that continued as new has left", in: janitor, tests: "TestAsk_RealRuns_GivesVerdict", edits: []edit{
		{janitor, "Janitor.inherits", "return 4 value", "first.IsZero() || !began.IsZero()"},
	}},

	// The lock library.
	{what: "a part that has drained is listed for ever", in: lockcore, tests: "TestStatus_DrainedPart_IsNotListed", edits: []edit{{lockcore, "holders", "case cond", "false"}}},
	{what: "a lock that another process has freed is noticed late", in: lockcore, tests: "TestWatchFor_FreedElsewhere_WakesWithinTwoSeconds", edits: []edit{
		{lockcore, "watcher.pollDue", "assign 3 value", "now.IsZero()"},
	}},

	// Commands.
	{what: "a lock ID with a slash counts as a workflow's", in: contention, tests: "TestHolds_PlainLockID_HasNoWorkflow", edits: []edit{{contention, "parseLockID", "|| 2", "drop"}}},
	{what: "a step is blamed for what another step of its workflow waits for", in: contention, tests: "TestRoots_StepLockID_IgnoresOtherSteps|TestRoots_WaitForAnotherStep_IsNotACycle|TestConclusion_StepLockID_IgnoresOtherSteps", edits: []edit{
		{contention, "hold.tiedTo", "if", "drop"},
		{contention, "analysis.waitsDuring", "if", "drop"},
	}},
	{what: "an interrupt during the analysis is ignored", in: contention, tests: "TestAnalyze_Cancelled_ReturnsTheCause", edits: []edit{{contention, "analysis.stopped", "value", "false"}}},
	{what: "why shows what another party of the same name has lost", in: inspect, tests: "TestWhy_SameName_ReportsOwnLossesOnly", edits: []edit{{inspect, "Party.is", "|| 2", `$1 != ""`}}},
	{what: "a refusal names a command with any text as the collection's ID", in: activities, tests: "TestActivities_HostileCollectionID_NamesNoCommand", edits: []edit{
		{currentrun, "CheckCollection", "if 2 cond", "$ || own != workflows"},
	}},
	{what: "a list that a command prints can begin a line", in: tables, tests: "TestFprintf_HostileArguments_StayOnTheirLine", edits: []edit{
		{tables, "Fprintf", "if init", "_, isText := arg.(string)"},
		{tables, "Fprintf", "if cond", "isText"},
	}},
	{what: "the doctor calls a standalone server a warning", in: inspect, tests: "TestDoctor_ReplicaSet_SeverityByKindOfServer", edits: []edit{{inspect, "replicaSetFinding", "return 3 arg", "Warning"}}},
}

// innerUndone is a test of several mutants.
const innerUndone = "TestOuterSaga_InnerSagaIsBeingUndone_Waits"
