// Package party is the lock engine for layers that act for workflows. It offers what package lockcore
// offers to programs and, in addition, requests with their own part and order, holds that are kept
// between steps, all runs of a workflow as one party, and waiting without a process.
//
// # The model
//
// A lock ID names one hold on a resource. A hold has parts, its running users: an attempt of a step, or
// a [Session]. Only parts trust a lock; the hold between them is only a reservation.
//
//	           Enter, Acquire                  Renew
//	                 │                        ┌─────┐
//	          busy   ▼   free                 ▼     │
//	queued ◄──────── ? ──────────────► held, with parts ───► all parts expired: stays until
//	   │                                  ▲        │          another request needs the
//	   │ granted      confirms            │        │ Leave    resource, then is evicted
//	   └──► claimed ──────────────────────┘        ▼
//	                                       the last part has left
//	                                           │         │
//	                                    kept   ▼         ▼   not kept
//	                              held, without parts   free
//
// A saga sets Persist: its hold is kept between steps, for the longer HoldTTL, until Release. A part
// that a later attempt has superseded, or whose hold another party has released, drains: it cannot be
// renewed, and excludes others until it leaves or expires.
//
// # Runs
//
// The party is the workflow, and the run label names the run that acts for it. A request of another run
// gets an *OtherRunError. If it then sets TakeOver, the kept holds of that run continue under a new
// fence. See [Request].
//
// # From a call to the database
//
// A call becomes an operation of package rules (acquire.go, enter.go, renew.go, release.go,
// workflow.go). command.go adds it to the line of its resource (package update). It is answered when a
// swap that contains it is acknowledged. [Locker.Acquire], and Enter with MaxWait, leave the operation
// in the line while they wait (acquire.go). The watcher finds the grants of other processes (watch.go).
// park.go serves requests that wait without a process. The keeper renews sessions (renew.go), and
// deadlock.go searches for cycles of waits and breaks them.
package party
