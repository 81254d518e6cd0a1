package wire

import (
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// AcquireParams is the input of [ActivityAcquire].
type AcquireParams struct {
	// LockID names the hold; absent means that of the calling workflow, the same for all its runs. Required outside of workflows.
	LockID string `json:"lockId,omitempty"`
	// Resources are taken in the order of their names: 1 to 100, no name twice.
	Resources []Resource `json:"resources"`
	// Part names the user of the hold within the lock ID.
	Part string `json:"part,omitempty"`
	// Schedule numbers the caller's requests. A release ends everything that was requested up to its own number, so an acquire after it
	// needs a greater one.
	Schedule uint32 `json:"schedule,omitempty"`
	// TTL is the time within which the part must be renewed; absent means the worker's setting, by default 30s.
	TTL Duration `json:"ttl,omitempty"`
	// HoldTTL is the time for which the hold lasts without being extended; absent means the worker's setting, by default 1h.
	HoldTTL Duration `json:"holdTtl,omitempty"`
	// HoldOnly takes the hold and no part of it: no process renews it, it lasts for HoldTTL, and a release frees it at once. If the activity's ID is "lockstep-wait-" and the schedule number, the worker
	// that frees the lock completes the activity. TTL must not exceed HoldTTL.
	HoldOnly bool `json:"holdOnly,omitempty"`
	// Reacquire takes the lock again if it was lost, instead of failing with FailureLost.
	Reacquire bool `json:"reacquire,omitempty"`
	// NewFence requests a new fence even if the lock is held already.
	NewFence bool `json:"newFence,omitempty"`
	// Saga is as in [Guard].
	Saga string `json:"saga,omitempty"`
	// Owner is for people and for deadlock detection: a text, or {"workflow": "ID"}; absent means the workflow.
	Owner Owner `json:"owner,omitzero"`
	// Comment is for people; absent means the activity's type and ID.
	Comment string `json:"comment,omitempty"`
	// Park is set if the workflow handles FailureParked: it runs ActivityWait, and then acquires again with a greater Schedule.
	Park bool `json:"park,omitempty"`
	// Try requests the locks without queueing: FailureBusy is not retryable, and nothing is left in a queue.
	Try bool `json:"try,omitempty"`
	// MaxWait bounds the wait for a busy lock, from the scheduling of the activity. After it, FailureBusy is not retryable, and a release
	// up to Schedule removes the request from the queue. It must not be combined with Park or Try. Absent means as long as it takes.
	MaxWait Duration `json:"maxWait,omitempty"`
	// Started is the start of the workflow run.
	Started time.Time `json:"started,omitzero"`
	// Inherits is as in [Guard].
	Inherits bool `json:"inherits,omitempty"`
	// NeverVictim keeps the request from being chosen as the victim of a deadlock.
	NeverVictim bool `json:"neverVictim,omitempty"`
	// Priority is 1, which is first, to 5; absent means that of the activity.
	Priority int `json:"priority,omitempty"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
	// Ancestors are as in [Guard].
	Ancestors []string `json:"ancestors,omitempty"`
}

// Check returns a *lockcore.InvalidError if MaxWait is negative.
func (p AcquireParams) Check() error { return CheckNotNegative("maxWait", p.MaxWait, asLongAsItTakes) }

// AcquireResult is the result of [ActivityAcquire].
type AcquireResult struct {
	LockID string `json:"lockId"`
	// Leases has one lease for each resource. If a worker that freed a lock has completed the activity, it has at most that of the resource
	// that was granted: acquire again, with a greater schedule number.
	Leases []Lease `json:"leases"`
}

// RenewParams is the input of [ActivityRenew].
type RenewParams struct {
	// Leases lists leases as Acquire returned them.
	Leases []Lease `json:"leases"`
}

// RenewResult is the result of [ActivityRenew].
type RenewResult struct {
	// Leases lists the renewed leases.
	Leases []Lease `json:"leases"`
}

// LeaveParams is the input of [ActivityLeave].
type LeaveParams struct {
	// Leases lists leases as Acquire returned them.
	Leases []Lease `json:"leases"`
}

// LeaveResult is the result of [ActivityLeave].
type LeaveResult struct{}

// ReleaseParams is the input of [ActivityRelease].
type ReleaseParams struct {
	// LockID is as in [AcquireParams].
	LockID string `json:"lockId,omitempty"`
	// Step is the part of a guard of scope step, and selects the lock ID of that step.
	Step string `json:"step,omitempty"`
	// Resources lists the names to release, any number.
	Resources []string `json:"resources"`
	// Schedule is the highest number of the requests that end; later requests stay. Every release has its own number, except a repeated
	// one. Without a number, a release with a LockID refuses no later request.
	Schedule uint32 `json:"schedule,omitempty"`
	// Leases are left first, so that their parts do not keep others out.
	Leases []Lease `json:"leases,omitempty"`
	// Committed is set if a saga has committed without asking about its locks. The release then reports which were lost.
	Committed bool `json:"committed,omitempty"`
	// Inherits is set if the run was reset, or continues one that handed its locks over. The release then also ends what other runs hold on
	// the resources, if the run is the current one.
	Inherits bool `json:"inherits,omitempty"`
	// All ends what other runs of the workflow hold on any resource.
	All bool `json:"all,omitempty"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
	// Run is the run that decided the release. In a run that a reset has made, it ends the requests of both.
	Run string `json:"run,omitempty"`
	// Handed is set if the run before has decided the release, and handed its locks over. It ends only requests of that run.
	Handed bool `json:"handed,omitempty"`
}

// VerifyParams is the input of [ActivityVerify].
type VerifyParams struct {
	// Used lists what the workflow must still hold: one resource or more.
	Used []Use `json:"used"`
	// Run is the run that asks. If the activity runs in another one, that was made by a reset.
	Run string `json:"run,omitempty"`
	// Inherits is as in [Guard].
	Inherits bool `json:"inherits,omitempty"`
	// Started is as in [AcquireParams].
	Started time.Time `json:"started,omitzero"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
}

// VerifyResult is the result of [ActivityVerify].
type VerifyResult struct{}

// Use names a resource that must have been held since the request with this schedule number, or an earlier one, used it.
type Use struct {
	Resource string `json:"resource"`
	// Schedule is the number of a request since which the resource must have been held without a gap.
	Schedule uint32 `json:"schedule"`
}

// ReleaseResult is the result of [ActivityRelease].
type ReleaseResult struct{}

// WaitParams is the input of [ActivityWait]: a queued request of a step that found the resource busy.
type WaitParams struct {
	// LockID is as in [AcquireParams].
	LockID string `json:"lockId,omitempty"`
	// Step is the part of a guard of scope step, and selects the lock ID of that step.
	Step string `json:"step,omitempty"`
	// Resource is the busy one.
	Resource Resource `json:"resource"`
	// Part is as in [AcquireParams].
	Part string `json:"part,omitempty"`
	// Order is the schedule number of the request, and the number of the attempt that failed.
	Order lockcore.Order `json:"order"`
	// Owner is as in [AcquireParams].
	Owner Owner `json:"owner,omitzero"`
	// Started is as in [AcquireParams].
	Started time.Time `json:"started,omitzero"`
	// NeverVictim keeps the request from being chosen as the victim of a deadlock.
	NeverVictim bool `json:"neverVictim,omitempty"`
	// Priority is that of the request, if it must be queued again.
	Priority int `json:"priority,omitempty"`
	// MaxWait bounds the wait, from the scheduling of the activity. After it, FailureBusy is not retryable. Absent means as long as it takes.
	MaxWait Duration `json:"maxWait,omitempty"`
	// Run is the run that scheduled the wait. In a run that a reset has made, the activity withdraws the request of the earlier run.
	Run string `json:"run,omitempty"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
	// Ancestors are as in [Guard].
	Ancestors []string `json:"ancestors,omitempty"`
	// Full is the number of waiters, if the request found the queue full. The activity waits until there are fewer, and checks within a
	// second, and later within a minute.
	Full int `json:"full,omitempty"`
	// FullRetries counts the waits in a row that found the queue full. The first pause grows with it.
	FullRetries int `json:"vain,omitempty"`
	// Reacquire takes a lost lock again. If the collection was replaced, such a request is made again, and every other one has lost its lock.
	Reacquire bool `json:"reacquire,omitempty"`
}

// Check returns a *lockcore.InvalidError if MaxWait is negative.
func (p WaitParams) Check() error { return CheckNotNegative("maxWait", p.MaxWait, asLongAsItTakes) }

// BarParams is the input of [ActivityBar].
type BarParams struct {
	// LockID is that of the calling workflow, or absent.
	LockID string `json:"lockId,omitempty"`
	// Resources lists the resources on which the steps are barred, at least one.
	Resources []string `json:"resources"`
	// Saga is the path of the saga whose steps are barred: "2" also bars those of "2/5", and no other saga's.
	Saga string `json:"saga"`
	// Schedule is the greatest schedule number of the barred steps: 1 or more.
	Schedule uint32 `json:"schedule"`
	// Collection is as in [Guard].
	Collection string `json:"collection,omitempty"`
}

// BarResult is the result of [ActivityBar].
type BarResult struct{}

// Lease is a [lockcore.Lease] whose duration other languages can read.
type Lease struct {
	lockcore.Lease
	Left Duration `json:"left"`
}

// Leases returns lockcore's leases as they travel.
func Leases(in []lockcore.Lease) []Lease {
	out := make([]Lease, 0, len(in))
	for _, l := range in {
		out = append(out, Lease{Lease: l, Left: Duration(l.Left)})
	}
	return out
}

// CoreLeases returns leases that have travelled as lockcore's. They are not trusted until they were renewed.
func CoreLeases(in []Lease) []lockcore.Lease {
	out := make([]lockcore.Lease, 0, len(in))
	for _, l := range in {
		core := l.Lease
		core.Left = time.Duration(l.Left)
		out = append(out, core)
	}
	return out
}
