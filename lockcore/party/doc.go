// Package party is the lock library as layers use it that speak for workflows: what package lockcore
// offers to programs, and in addition requests that bring their own part and order, holds that are
// kept between steps, the runs of a workflow as one party, and waiting without a process.
//
// # The model
//
// A lock ID names one hold on a resource. A hold has parts, its running users: an attempt of a step,
// or a [Session]. Only a part trusts the lock at a given moment.
//
//	           Enter, Acquire                  Renew
//	                 │                        ┌─────┐
//	          busy   ▼   free                 ▼     │
//	queued ◄──────── ? ──────────────► held, with parts ───► all their time is over: stays
//	   │                                  ▲        │          until another needs the room,
//	   │ granted      asks again          │        │ Leave    and then is evicted
//	   └──► claimed ──────────────────────┘        ▼
//	                                       the last part left
//	                                           │         │
//	                                    kept   ▼         ▼   not kept
//	                              held, without parts   free
//
// A saga asks with Persist: its hold is kept between steps, for the longer HoldTTL, until Release. A
// part that a later attempt superseded, or whose hold another released, drains: it cannot be renewed,
// and keeps others out until it leaves or its TTL ends.
//
// # From a call to the database
//
// A call becomes an operation of package rules (acquire.go, enter.go, renew.go, release.go,
// workflow.go). command.go adds it to the line of its resource (package update), and it is answered
// when a swap that contains it has been acknowledged. [Locker.Acquire], and Enter with MaxWait, leave
// the operation in the line while they wait (wait.go). The watcher finds what other processes grant
// (watch.go), park.go serves requests that wait without a process, the keeper renews sessions
// (renew.go), and deadlock.go searches for cycles of waits and ends them.
//
// # Runs
//
// The party is the workflow, and a run label tells which of its runs represents it. A request of
// another run is answered by an *OtherRunError; with the permission TakeOver, what that run keeps
// continues under a new fence. See [Request].
package party
