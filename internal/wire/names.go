package wire

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
)

// Headers. HeaderKey is in the header of an activity, the others in that of the start of a workflow run.
const (
	// HeaderKey carries the [Guard] of a step.
	HeaderKey = "lockstep-guard"
	// HandoverKey carries a [Handover] from a run that continued as new.
	HandoverKey = "lockstep-handover"
	// DueKey carries the releases that a run has decided which continued as new and handed its locks over.
	DueKey = "lockstep-due"
	// OwnerKey carries the [Owner] of the parent.
	OwnerKey = "lockstep-owner"
)

// PluginName is the name under which a worker with Lockstep's plugin appears in Temporal.
const PluginName = "temporal-lockstep.lockstep"

// Names of the activities, the same for every SDK.
const (
	ActivityPrefix  = "lockstep."
	ActivityAcquire = "lockstep.Acquire"
	ActivityRenew   = "lockstep.Renew"
	ActivityLeave   = "lockstep.Leave"
	ActivityRelease = "lockstep.Release"
	ActivityVerify  = "lockstep.Verify"
	ActivityWait    = "lockstep.Wait"
	ActivityBar     = "lockstep.Bar"
)

// IsNeverGuarded reports whether an activity, by its exact name, is one of Lockstep's own, or one with which the SDK begins and ends
// sessions.
func IsNeverGuarded(activityType string) bool {
	switch activityType {
	case ActivityAcquire, ActivityRenew, ActivityLeave, ActivityRelease, ActivityVerify, ActivityWait, ActivityBar,
		"internalSessionCreationActivity", "internalSessionCompletionActivity":
		return true
	default:
		return false
	}
}

// WaitID returns the ID of the activity that waits for a request with this schedule number. The worker that grants the lock derives
// the same ID from the order of the request. It is unique within a run, because schedule numbers grow.
func WaitID(schedule uint32) string { return fmt.Sprintf("lockstep-wait-%d", schedule) }

// FuncName returns the name under which the SDK registers a function or a method by default. f must be a func.
func FuncName(f reflect.Value) string {
	name := runtime.FuncForPC(f.Pointer()).Name()
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
}

// Types of application failures.
const (
	// FailureBusy: other parties hold the lock, or wait ahead. Benign. Retryable, except after MaxWait or with Try.
	FailureBusy = "lockstep.Busy"
	// FailureParked: with Park, the lock is busy, the queue is full, or the database cannot be reached. Benign and not retryable: the workflow runs
	// [ActivityWait] and then schedules the step again.
	FailureParked = "lockstep.Parked"
	// FailureLost: the lock was lost, and others may have held it. Not retryable.
	FailureLost = "lockstep.Lost"
	// FailureSuperseded: a release or a later request came first. Not retryable, unless it was a later attempt of the same scheduling.
	FailureSuperseded = "lockstep.Superseded"
	// FailureDeadlock: the request gave up to end a deadlock. Not retryable, because the saga must release what it holds first.
	FailureDeadlock = "lockstep.Deadlock"
	// FailureInvalid: the input is never accepted. Not retryable.
	FailureInvalid = "lockstep.Invalid"
	// FailureUnavailable: the database, or the worker's configuration, failed. Retryable.
	FailureUnavailable = "lockstep.Unavailable"
	// FailureOtherRun: another run of the workflow holds the lock, and this one is not the current run, according to Temporal. Retryable,
	// because its answer may have been out of date.
	FailureOtherRun = "lockstep.OtherRun"
	// FailureOtherCollection: the worker has another collection. Retryable, because another worker may take the next attempt.
	FailureOtherCollection = "lockstep.OtherCollection"
	// FailureResultPending means that a guarded activity returned activity.ErrResultPending. Not retryable.
	FailureResultPending = "lockstep.ResultPending"
	// FailureEnded is made by the workflow, for a step that was still waiting for its locks when its saga ended. Not retryable.
	FailureEnded = "lockstep.Ended"
	// FailureSagaFailed is made by the workflow, for a saga in which a compensation failed. Not retryable, because a person must repair
	// the state.
	FailureSagaFailed = "lockstep.SagaFailed"
)

// Scopes of a guard, as they appear in headers. A reader refuses any other.
const (
	ScopeStep = "step"
	ScopeSaga = "saga"
)
