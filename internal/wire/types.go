package wire

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// HeaderKey is the activity header under which a step's [Guard] travels.
const HeaderKey = "lockstep-guard"

// PluginName is the name under which a worker with Lockstep's plugin appears in Temporal.
const PluginName = "temporal-lockstep.lockstep"

// Names of the activities, the same for every SDK.
const (
	ActivityPrefix  = "lockstep."
	ActivityAcquire = "lockstep.Acquire"
	ActivityRenew   = "lockstep.Renew"
	ActivityLeave   = "lockstep.Leave"
	ActivityRelease = "lockstep.Release"
	ActivityWait    = "lockstep.Wait"
	ActivityKeep    = "lockstep.Keep"
	ActivityBar     = "lockstep.Bar"
)

// IsMachinery reports whether an activity, by its exact name, is one of Lockstep's own, or one by which the SDK makes and ends
// sessions: it is never guarded.
func IsMachinery(activityType string) bool {
	switch activityType {
	case ActivityAcquire, ActivityRenew, ActivityLeave, ActivityRelease, ActivityWait, ActivityKeep, ActivityBar,
		"internalSessionCreationActivity", "internalSessionCompletionActivity":
		return true
	default:
		return false
	}
}

// Types of application failures.
const (
	// FailureBusy carries [BusyDetails]. Benign; retryable, unless the request was not to queue.
	FailureBusy = "lockstep.Busy"
	// FailureParked carries [ParkedDetails]. Benign and not retryable: the workflow answers it by [ActivityWait], and asks again.
	FailureParked = "lockstep.Parked"
	// FailureLost carries [LostDetails]. Not retryable.
	FailureLost = "lockstep.Lost"
	// FailureSuperseded carries [SupersededDetails]. Not retryable, unless it is a later attempt of the
	// same scheduling that came first.
	FailureSuperseded = "lockstep.Superseded"
	// FailureDeadlock carries [DeadlockDetails]. Not retryable: what the saga holds has to go first.
	FailureDeadlock = "lockstep.Deadlock"
	// FailureInvalid carries [InvalidDetails]. Not retryable.
	FailureInvalid = "lockstep.Invalid"
	// FailureUnavailable means that the database, or the worker's configuration, failed. Retryable.
	FailureUnavailable = "lockstep.Unavailable"
	// FailureOtherRun carries [OtherRunDetails]: another run of the workflow holds, and Temporal does not say that the one which
	// asks is the current one. Retryable: the answer may have been an old one.
	FailureOtherRun = "lockstep.OtherRun"
	// FailureOtherCollection means that the worker keeps its locks in another collection than the workflow's. Retryable: another
	// worker may come.
	FailureOtherCollection = "lockstep.OtherCollection"
	// FailureResultPending means that a guarded activity returned activity.ErrResultPending. Not retryable.
	FailureResultPending = "lockstep.ResultPending"
	// FailureEnded is the workflow's own, for a step that was still waiting for its locks when its saga ended. Not retryable.
	FailureEnded = "lockstep.Ended"
	// FailureSagaFailed is the workflow's own, for a saga of which a compensation failed. Not
	// retryable: a person has to look.
	FailureSagaFailed = "lockstep.SagaFailed"
)

// Scopes of a guard, as they stand in headers. A reader refuses any other.
const (
	ScopeStep = "step"
	ScopeSaga = "saga"
)

// Guard is the payload of [HeaderKey]: the locks that a step takes when it is entered.
type Guard struct {
	// Part is the step's identity within its run, such as "3/Debit": the same for every attempt, and
	// for every scheduling of it.
	Part string `json:"part"`
	// Schedule numbers the schedulings of a run; it grows. With the attempt it is the request's order.
	Schedule uint32 `json:"schedule"`
	// Scope is ScopeStep or ScopeSaga.
	Scope string `json:"scope"`
	// Resources are what is locked. Held says per resource that the lock ID is known to hold it.
	Resources []lockcore.Resource `json:"resources"`
	// TTL of the part; absent means the worker's default.
	TTL Duration `json:"ttl,omitempty"`
	// HoldTTL of the hold, in scope saga; absent means the worker's default.
	HoldTTL Duration `json:"holdTtl,omitempty"`
	// Reacquire takes the lock again if it was lost.
	Reacquire bool `json:"reacquire,omitempty"`
	// NewFence gives a new fence even if the lock is held already.
	NewFence bool `json:"newFence,omitempty"`
	// Saga is the innermost saga of the step, by which [ActivityBar] finds it; absent outside of sagas.
	Saga string `json:"saga,omitempty"`
	// Owner is who stands behind the lock ID; absent means the workflow.
	Owner Owner `json:"owner,omitzero"`
	// Park says that the workflow can answer FailureParked.
	Park bool `json:"park,omitempty"`
	// Try asks without queueing.
	Try bool `json:"try,omitempty"`
	// MaxWait is what is left of how long the step may wait; absent means as long as it takes.
	MaxWait Duration `json:"maxWait,omitempty"`
	// Undoes is the Part of the step that this one undoes: it waits until no attempt of that step runs any more, and none
	// that comes later runs. Its resources contain that step's.
	Undoes string `json:"undoes,omitempty"`
	// Before is the run that was reset, if this one came of a reset: a step of it may have been one of that run's too. With Undoes,
	// that run's step is undone as well. Other runs that this one has replaced are known where the lock is.
	Before string `json:"before,omitempty"`
	// Started is when the workflow run began, and NeverVictim says that the step must not be given up to end a deadlock.
	Started     time.Time `json:"started,omitzero"`
	NeverVictim bool      `json:"neverVictim,omitempty"`
	// Run is the run that wrote the guard. In another one, which was made by a reset and has the step from the one before, Held
	// means nothing, and the step may have run.
	Run string `json:"run,omitempty"`
	// Collection is the ID of the collection in which the workflow's worker keeps its locks, if that is known. A worker with
	// another one refuses the step.
	Collection string `json:"collection,omitempty"`
	// Ancestors are the IDs of the parent and of the root of a child workflow.
	Ancestors []string `json:"ancestors,omitempty"`
}

// Lease is a [lockcore.Lease] as other languages read it.
type Lease struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId"`
	// Run is the run label, and Undone names what the lease bars besides: see [lockcore.Lease].
	Run    string        `json:"run,omitempty"`
	Undone []string      `json:"undone,omitempty"`
	Part   string        `json:"part,omitempty"`
	Order  party.Order   `json:"order"`
	Mode   lockcore.Mode `json:"mode"`
	Fence  int64         `json:"fence"`
	// FirstFence is the fence with which the hold began, LeastFence the smallest one that may still write, and Bars is set if a new
	// fence was asked for.
	FirstFence int64    `json:"firstFence,omitempty"`
	LeastFence int64    `json:"leastFence,omitempty"`
	Bars       bool     `json:"bars,omitempty"`
	Left       Duration `json:"left"`
	Joined     bool     `json:"joined,omitempty"`
}

// AcquireParams is the input of [ActivityAcquire].
type AcquireParams struct {
	// LockID names the hold; absent means that of the workflow run which calls.
	LockID string `json:"lockId,omitempty"`
	// Resources are taken in the order of their names: 1 to 100, no name twice. When one is busy, those before it stay held, unless
	// Try is set.
	Resources []lockcore.Resource `json:"resources"`
	// Part names the user of the hold within the lock ID; absent is a name too, that of the only user.
	Part string `json:"part,omitempty"`
	// Schedule numbers the caller's requests: it must grow from one acquire to the next once something
	// was released, for a release ends whatever was asked for up to its own number.
	Schedule uint32 `json:"schedule,omitempty"`
	// TTL is how long the part may be silent before it must have been renewed; absent means the worker's default.
	TTL Duration `json:"ttl,omitempty"`
	// HoldTTL is how long the hold stands with no sign of life; absent means the worker's default.
	HoldTTL Duration `json:"holdTtl,omitempty"`
	// HoldOnly takes the hold and no part of it: the hold lasts for HoldTTL, no process renews it, and a release lets others in
	// at once. For locks that a workflow holds rather than a process. If the activity's ID is WaitID(Schedule), the worker that
	// frees the lock completes the activity: see AcquireResult. TTL has no meaning, except that it is not
	// more than HoldTTL.
	HoldOnly bool `json:"holdOnly,omitempty"`
	// Reacquire takes the lock again if it was lost, instead of failing with FailureLost.
	Reacquire bool `json:"reacquire,omitempty"`
	// NewFence gives a new fence even if the lock is held already.
	NewFence bool `json:"newFence,omitempty"`
	// Saga is as in [Guard].
	Saga string `json:"saga,omitempty"`
	// Owner is who stands behind the lock ID, for people and deadlock detection; absent means the workflow.
	Owner Owner `json:"owner,omitzero"`
	// Comment is for people; absent means the activity's type and ID.
	Comment string `json:"comment,omitempty"`
	// Park says that the workflow answers a FailureParked by ActivityWait, and acquires again with a greater number.
	Park bool `json:"park,omitempty"`
	// Try asks without queueing: FailureBusy is not retryable, and nothing is left in a queue.
	Try bool `json:"try,omitempty"`
	// MaxWait bounds the wait for a busy lock, from the scheduling of the activity. A later attempt that finds it busy fails with a
	// FailureBusy that is not retryable. What the request has left in the queue ends with a release up to Schedule. Not with Park
	// or Try. Absent is forever.
	MaxWait Duration `json:"maxWait,omitempty"`
	// Started is when the workflow run began, and NeverVictim says that the request must not be given up to end a deadlock.
	Started     time.Time `json:"started,omitzero"`
	NeverVictim bool      `json:"neverVictim,omitempty"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
	// Ancestors are as in [Guard].
	Ancestors []string `json:"ancestors,omitempty"`
}

// Check returns a *lockcore.InvalidError if the activity cannot acquire so.
func (p AcquireParams) Check() error { return CheckNotNegative("maxWait", p.MaxWait, asLongAsItTakes) }

// AcquireResult is the result of [ActivityAcquire]. That of an attempt names all resources. If a worker that frees a lock has completed the activity, it
// names only the resource that was granted, or there is no result: the caller acquires again, with a greater Schedule.
type AcquireResult struct {
	LockID string  `json:"lockId"`
	Leases []Lease `json:"leases"`
}

// RenewParams is the input of [ActivityRenew].
type RenewParams struct {
	Leases []Lease `json:"leases"`
}

// RenewResult is the result of [ActivityRenew].
type RenewResult struct {
	Leases []Lease `json:"leases"`
}

// LeaveParams is the input of [ActivityLeave].
type LeaveParams struct {
	Leases []Lease `json:"leases"`
}

// LeaveResult is the result of [ActivityLeave].
type LeaveResult struct{}

// ReleaseParams is the input of [ActivityRelease], which verifies with Used, and otherwise releases.
type ReleaseParams struct {
	// LockID is whose holds end; absent means that of the workflow run which calls.
	LockID string `json:"lockId,omitempty"`
	// Step is the Part of a guard of scope step, whose lock ID it is then.
	Step string `json:"step,omitempty"`
	// Resources lists what is released: any number of names.
	Resources []string `json:"resources"`
	// Schedule is the highest number of the requests that end. What was asked for later stays. A release that is made again after
	// its outcome was not known has the same number, and every other one another.
	Schedule uint32 `json:"schedule,omitempty"`
	// Leases are left first, so that their parts do not keep others out until their TTL ends.
	Leases []Lease `json:"leases,omitempty"`
	// Used lists what the workflow must still hold, because completed steps have used it. It is verified and renewed, and nothing
	// is released. If something is lost, the failure is a FailureLost. It does not go with LockID of another, Step, Resources or All.
	Used []Use `json:"used,omitempty"`
	// Inherits says that the run was reset, or goes on for one that continued as new with HandOver. Then a hold of Used that is
	// missing is lost only if there is evidence, and what other runs of its workflow hold on the resources ends too, if the run is
	// the current one. All says that it ends on whatever resource.
	Inherits bool `json:"inherits,omitempty"`
	All      bool `json:"all,omitempty"`
	// Before is the run that was reset, the first one. Its losses are this one's, and those of the runs between them, as far as the
	// history or the database names them.
	Before string `json:"before,omitempty"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
}

// Use says that the request with a schedule number, or one before it, has used a resource, and that it must be held since.
type Use struct {
	Resource string `json:"resource"`
	Schedule uint32 `json:"schedule"`
}

// ReleaseResult is the result of [ActivityRelease].
type ReleaseResult struct{}

// WaitParams is the input of [ActivityWait]: a request that is queued, as a step that found the resource busy left it.
type WaitParams struct {
	// LockID names the hold; absent means that of the workflow run which calls.
	LockID string `json:"lockId,omitempty"`
	// Step is the Part of a guard of scope step, whose lock ID it is then.
	Step     string            `json:"step,omitempty"`
	Resource lockcore.Resource `json:"resource"`
	Part     string            `json:"part,omitempty"`
	Order    party.Order       `json:"order"`
	Owner    Owner             `json:"owner,omitzero"`
	Started  time.Time         `json:"started,omitzero"`
	// NeverVictim keeps the request from being given up to end a deadlock.
	NeverVictim bool `json:"neverVictim,omitempty"`
	// MaxWait is how long it waits, from when it was scheduled; then it fails, with a FailureBusy that is not retryable.
	// Absent is for ever.
	MaxWait Duration `json:"maxWait,omitempty"`
	// Run is the run that scheduled the wait. In another one, which was made by a reset, there is nothing to wait for:
	// the place is given up, and the wait is over.
	Run string `json:"run,omitempty"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
	// Ancestors are as in [Guard].
	Ancestors []string `json:"ancestors,omitempty"`
	// Full is, of a request that found no room in the queue, how many stood there. It waits until there are fewer, and looks
	// with growing pauses.
	Full int `json:"full,omitempty"`
	// Vain is how many waits in a row have been followed by another one without a place: the first pause grows with them.
	Vain int `json:"vain,omitempty"`
}

// Check returns a *lockcore.InvalidError if the activity cannot wait so.
func (p WaitParams) Check() error { return CheckNotNegative("maxWait", p.MaxWait, asLongAsItTakes) }

// KeepParams is the input of [ActivityKeep].
type KeepParams struct {
	// LockID names the hold; absent means that of the workflow run which calls.
	LockID string `json:"lockId,omitempty"`
	// Resources are where it is kept alive: 1 to 100 names.
	Resources []string `json:"resources"`
	// Once extends the holds once and returns.
	Once bool `json:"once,omitempty"`
	// HandOver, with Once, also marks the holds as left to the run that continues this one.
	HandOver bool `json:"handOver,omitempty"`
	// Inherits is as in [ReleaseParams]: a hold that is missing is no loss then.
	Inherits bool `json:"inherits,omitempty"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
}

// KeepResult is the result of [ActivityKeep], which without Once ends by itself only by a failure.
type KeepResult struct{}

// BarParams is the input of [ActivityBar].
type BarParams struct {
	// LockID is that of the workflow run which calls; absent means the same. No other is accepted.
	LockID string `json:"lockId,omitempty"`
	// Resources are where the bar is raised: any number of names, and at least one.
	Resources []string `json:"resources"`
	// Saga is the outermost saga whose steps are barred, as their guards name it.
	Saga string `json:"saga"`
	// Schedule is the greatest number of the steps that are barred: 1 or more.
	Schedule uint32 `json:"schedule"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
}

// BarResult is the result of [ActivityBar].
type BarResult struct{}

// Holder is a [lockcore.Holder] as other languages read it.
type Holder struct {
	LockID     string        `json:"lockId"`
	Run        string        `json:"run,omitempty"`
	Owner      string        `json:"owner,omitempty"`
	Host       string        `json:"host,omitempty"`
	Mode       lockcore.Mode `json:"mode"`
	Fence      int64         `json:"fence,omitempty"`
	FirstFence int64         `json:"firstFence,omitempty"`
	Since      time.Time     `json:"since,omitzero"`
	ExpiresIn  Duration      `json:"expiresIn,omitempty"`
	Trace      string        `json:"trace,omitempty"`
	State      string        `json:"state,omitempty"`
	Part       string        `json:"part,omitempty"`
	Silent     Duration      `json:"silent,omitempty"`
	HoldTTL    Duration      `json:"holdTtl,omitempty"`
	Limit      int           `json:"limit,omitempty"`
	Comment    string        `json:"comment,omitempty"`
}
