// Package activities gives the code of an activity access to the locks under which it runs, by [Fence] and [Leases]. It also contains
// Lockstep's own activities, which package worker registers. Go workflows do not call these: they ask for locks with package workflows.
//
// A fence is a number that grows with every grant of a resource. A store that remembers the highest fence it has seen, and refuses lower
// ones, is safe from a step that has lost its lock:
//
//	func (a *Bank) Debit(ctx context.Context, in Transfer) error {
//		fence, _ := activities.Fence(ctx, "account/"+in.From)
//		return a.accounts.Debit(ctx, in.From, in.Cents, fence)
//	}
//
// Workflows in other languages lock by calling activities by name, with JSON in and out:
//
//	lockstep.Acquire  {"resources": [{"name": "account/42"}], "schedule": 1, "holdTtl": "10m", "holdOnly": true}
//	               →  {"lockId": "5b1e…/order-7/…", "leases": [{"resource": "account/42", "fence": 1767225600000, …}]}
//	lockstep.Verify   {"used": [{"resource": "account/42", "schedule": 1}]}  →  {}
//	lockstep.Release  {"resources": ["account/42"], "schedule": 1}  →  {}
//	lockstep.Renew    {"leases": […]}  →  {"leases": […]}
//	lockstep.Leave    {"leases": […]}  →  {}
//	lockstep.Bar      {"resources": ["account/42"], "saga": "1", "schedule": 1}  →  {}
//	lockstep.Wait     {"resource": {"name": "account/42"}, "order": {"schedule": 1, "attempt": 1}}  →  null
//
// If a lock is busy, Acquire fails with the retryable type lockstep.Busy, and its retry keeps the position in the queue.
// lockstep.Unavailable means that the database failed, and is retryable too. lockstep.Lost, lockstep.Deadlock, lockstep.Superseded and
// lockstep.Invalid are not. A workflow that acquires again after a release uses a greater schedule.
//
// An acquired hold lasts for its HoldTTL. Verify extends it, and so does the janitor of a worker while the workflow's run is open. The
// janitor also releases what a closed run has left.
//
// All fields and failures, and how to wait without retries: docs/activities.md in the repository.
package activities
