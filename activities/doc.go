// Package activities holds Lockstep's own activities, and what the code of a guarded step may ask
// about its locks.
//
// # From inside a step
//
// A step that runs under locks knows their fences by [Leases] and [Fence]. A fence is a number per resource that
// grows with every grant; a resource that remembers the highest one it has seen, and refuses
// lower ones, is safe from a step that does not know yet that it has lost its lock.
//
//	func (a *Bank) Debit(ctx context.Context, in Transfer) error {
//		fence, _ := activities.Fence(ctx, "account/"+in.From)
//		return a.accounts.Debit(ctx, in.From, in.Cents, fence)
//	}
//
// # From any SDK
//
// Workflows in other languages, which know neither this module nor its interceptor, take locks by
// calling activities by name, with JSON in and out:
//
//	lockstep.Acquire  {"resources": [{"name": "account/42"}], "schedule": 1, "holdTtl": "10m", "holdOnly": true}
//	               →  {"lockId": "5b1e…/order-7/…", "leases": [{"resource": "account/42", "fence": 1767225600000, …}]}
//	lockstep.Renew    {"leases": […]}  →  {"leases": […]}
//	lockstep.Leave    {"leases": […]}  →  {}
//	lockstep.Release  {"resources": ["account/42"], "schedule": 1}  →  {}
//	lockstep.Keep     {"resources": ["account/42"]}, until it is cancelled
//	lockstep.Wait     {"resource": {"name": "account/42"}, "order": {"schedule": 1, "attempt": 1}}  →  null
//
// Modes are "X", the default, and "S", with "limit" for a semaphore. Durations are texts: "30s", "1m30s",
// "forever". The lock ID is that of the calling workflow run unless one is given, so a workflow needs
// none. A workflow that releases and acquires again numbers its acquires by "schedule": a release ends
// whatever was asked for up to its own number, and refuses what arrives late.
//
// Wait tells when a queued request is worth making again; guarded steps use it, and workflows in other languages
// may. A lock that is busy is, for Acquire, a retryable failure of type lockstep.Busy and the benign category, which says when
// to come back. The request keeps its place in the queue between attempts, as long as
// the activity's retry policy lets it come back. Failures of type lockstep.Lost, lockstep.Deadlock,
// lockstep.Superseded and lockstep.Invalid are not retryable; lockstep.Unavailable, the database, is. Each but
// the last carries its facts as details.
//
// An Acquire with "try" asks without queueing, and fails at once. One with "park" is for callers that wait as Lockstep's own
// workflows do: its lockstep.Busy is not retryable and carries the "attempt"; the caller runs lockstep.Wait, with
// the order of the request and the activity ID "lockstep-wait-" and its schedule, until it returns, and acquires again with a
// greater schedule. "started" and "neverVictim" are for deadlocks: who began last gives up, unless it
// must not.
//
// Keep, with a heartbeat timeout of 30 s or so, extends the holds every third of their HoldTTL for as long as it
// runs: start it for locks that stand longer, and cancel it before the release. It fails with lockstep.Lost where a hold is
// lost, and releases the holds of a workflow that was terminated or has timed out.
//
// # What it does not promise
//
// What Acquire took stands for its HoldTTL, counted from the last sign of life. Signs of life are Keep and, if it was taken
// in the workflow's own name, the janitor of a worker as long as the run is open. The janitor also releases what a workflow
// leaves that ends without Release.
//
// All of it at length: docs/activities.md in the repository.
package activities
