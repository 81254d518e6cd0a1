package main

import (
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// Call is the argument of a step and of its compensation.
type Call struct {
	Node Node
	// Instance names the sagas around the step, each with its attempt, as in "3.1/5.1"; empty outside of sagas.
	Instance string
	// Kept is the scope that keeps the step's locks: the outermost saga with its attempt, or
	// rootScope; empty if the step alone has them.
	Kept string
	// Changed is set by the caller after it has passed a pointer to the call. No activity may see it.
	Changed bool `json:",omitempty"`
}

// rootScope is the scope of locks that are kept until the workflow's function returns.
const rootScope = "root"

// Held is a lease of an attempt.
type Held struct {
	Resource string
	Fence    int64
	Joined   bool `json:",omitempty"`
	// Member is the member of a pool, and Least the lease's LeastFence.
	Member string `json:",omitempty"`
	Least  int64  `json:",omitempty"`
}

// Record is a line of the log. What is set depends on What.
type Record struct {
	At      int64  // Unix time in ns
	What    string // see the constants
	Process string `json:",omitempty"`

	Workflow string `json:",omitempty"`
	Run      string `json:",omitempty"`
	// Exec identifies one execution of an attempt, in all four of its records.
	Exec    string `json:",omitempty"`
	Call    *Call  `json:",omitempty"`
	Undo    bool   `json:",omitempty"`
	Attempt int32  `json:",omitempty"`
	Held    []Held `json:",omitempty"`
	// Trusted is the last time at which all leases of a step were valid; 0 if there was none. In records of the
	// database's state it is the time at which the read began, and in those of limits the time of the answer.
	Trusted int64 `json:",omitempty"`
	// Scope is a scope as in Call.Kept, the instance of a nested saga, or the ID of a Lock's node.
	Scope string `json:",omitempty"`
	Needs []Need `json:",omitempty"`
	// Error is the text of an error, and Type its kind: see kindOf.
	Error string `json:",omitempty"`
	Type  string `json:",omitempty"`
	// Other is the run that a reset or continue-as-new has created, the ID of a signal, the process of a fault, or the resource
	// of a hold.
	Other string `json:",omitempty"`
	// Task is the workflow task in which workflow code wrote the record, by the ID of the event that started it. Tasks are those
	// of a run that the server has recorded.
	Task  int64   `json:",omitempty"`
	Tasks []int64 `json:",omitempty"`
	// Until is the Unix time in ns at which a limit ends; 0 if it does not.
	Until int64 `json:",omitempty"`
}

// Values of Record.What.
const (
	Enter    = "enter"    // an attempt came to the worker
	Begin    = "begin"    // its code runs, under locks
	End      = "end"      // its code has ended
	Exit     = "exit"     // its result was returned to Temporal
	Locked   = "locked"   // a Lock has its locks
	Leaving  = "leaving"  // a scope is about to end; a saga may still be undone
	Returned = "returned" // a scope has ended
	HandOver = "handover" // a run leaves its locks to the next
	Killed   = "killed"
	Stopped  = "stopped"
	Resumed  = "resumed"
	Meddled  = "meddled" // an operator acted on a workflow as in Type
	Closed   = "closed"  // a run has ended; Error is its status
	Seen     = "seen"    // a step of the run, named by Scope, has a waiter or a claim

	Interrupted = "interrupted" // before a completion was sent, Type was done: "cancel" or "lose"
	Signalled   = "signalled"   // a signal, named by Other, was sent; Error is empty if the server accepted it
	Heard       = "heard"       // workflow code received the signal named by Other
	Drained     = "drained"     // workflow code has received all signals at the end of its run
	Skipped     = "skipped"     // a signal made the run leave out a Lock
	Holds       = "holds"       // the run holds the resource named by Other
	Recorded    = "recorded"    // the server has recorded Tasks of the run

	Asked    = "asked"    // workflow code calls Verify in the scope, at the node named by Other
	Verified = "verified" // that Verify has returned nil
	Ignored  = "ignored"  // a step of the scope has failed with Type, and the code continues
	Updated  = "updated"  // the update named by Other has ended for its client; Error is empty if it has completed without one
	Limited  = "limited"  // an operator changes a limit to that in Needs, or removes it if that is 0
	Fenced   = "fenced"   // an account has refused a write of the attempt; Held has the fence that came first
	Changed  = "changed"  // an operator has done Type to the member of a pool in Other, between the record's time and Trusted
	Slowed   = "slowed"   // from now on, for the duration in Other, the database is slow for the worker of Type; empty for all of them
)

// Log is the log of one process.
type Log = harness.Log[Record]

// OpenLog opens the log of a process in dir.
func OpenLog(dir, process string) (*Log, error) {
	return harness.OpenLog(dir, process, func(r *Record) {
		r.Process = process
		if r.At == 0 {
			r.At = time.Now().UnixNano()
		}
	})
}

// ReadLogs returns the records of all logs in dir, in time order.
func ReadLogs(dir string) ([]Record, error) {
	return harness.ReadLogs(dir, func(r *Record) int64 { return r.At })
}
