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
//	               →  {"lockId": "temporal:default/…", "leases": [{"resource": "account/42", "fence": 1767225600000, …}]}
//	lockstep.Renew    {"leases": […]}  →  {"leases": […]}
//	lockstep.Leave    {"leases": […]}  →  {}
//	lockstep.Release  {"resources": ["account/42"], "schedule": 1}  →  {}
//	lockstep.Wait     {"resource": {"name": "account/42"}, "order": {"schedule": 1, "attempt": 1}}  →  null
//
// Modes are "X", the default, and "S", with "limit" for a semaphore. Durations are texts: "30s", "1m30s",
// "forever". The lock ID is that of the calling workflow run unless one is given, so a workflow needs
// none. A workflow that releases and acquires again numbers its acquires by "schedule": a release ends
// whatever was asked for up to its own number, and refuses what arrives late.
//
// A lock that is busy is a retryable failure of type lockstep.Busy and the benign category, which says when
// to come back. The request keeps its place in the queue between attempts, as long as
// the activity's retry policy lets it come back. Failures of type lockstep.Lost, lockstep.Superseded
// and lockstep.Invalid are not retryable; lockstep.Unavailable, the database, is. Each carries its
// facts as details.
//
// # What it does not promise
//
// What Acquire took is not renewed by anybody. Between activities it stands for its HoldTTL, counted
// from the last sign of life. A workflow that ends without Release leaves it standing that long, or until the orphan
// reaper, which is the activity lockstep.Reap, finds it.
//
// All of it at length: docs/activities.md in the repository.
package activities
