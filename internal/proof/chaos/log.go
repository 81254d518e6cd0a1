package main

import "github.com/temporal-lockstep/lockstep/internal/proof/harness"

// Record is a line of the log. What is set depends on What.
type Record struct {
	// At is the time in ns by the machine's monotonic clock, which all processes share. For a call it is the time after the
	// answer, and Began the time before the call.
	At, Began int64
	What      string
	Process   string
	// Slot is the process's slot. That of a record about a fault is in Fault.
	Slot int

	Resource string `json:",omitempty"`
	LockID   string `json:",omitempty"`
	Shared   bool   `json:",omitempty"`
	Limit    int    `json:",omitempty"`
	Fence    int64  `json:",omitempty"`
	// Result is the result of a call: see the constants. Error is its error.
	Result string `json:",omitempty"`
	Error  string `json:",omitempty"`
	// LockIDs has the waiters of a queue. Heard has the time at which each becomes overdue, or 0.
	LockIDs []string `json:",omitempty"`
	Heard   []int64  `json:",omitempty"`
	// Holders is the number of its holders then, with claims.
	Holders int `json:",omitempty"`
	// Base is the version of a register that a write is based on, and Version is its version just before the write. Key names
	// the change that a saga's step makes, and Undo is set for its compensation.
	Base, Version int64  `json:",omitempty"`
	Key           string `json:",omitempty"`
	Undo          bool   `json:",omitempty"`
	// Number is the index of the fault in the plan.
	Number int    `json:",omitempty"`
	Fault  *Fault `json:",omitempty"`
	// Policy is the policy after a change. Key names the change.
	Policy *Policy `json:",omitempty"`
}

// Values of Record.What.
const (
	Asked   = "asked"   // a request for one resource of an acquisition, with Result queue or try
	Got     = "got"     // it was granted; the holder trusts it from At on
	Not     = "not"     // it was not granted
	Trusted = "trusted" // the lease was valid at At
	Loss    = "loss"    // its session reported a loss; Error is the reason
	Left    = "left"    // the lease was given back
	Probe   = "probe"   // a request for a resource that no other process asks for was carried out, and the lock given back

	Try     = "try"     // the operations of a history that must be linearizable
	Renew   = "renew"   //
	Release = "release" //

	Access = "access" // an access to a register, in the register's order; Error names the operation
	Queue  = "queue"  // the queue of a resource, as it was at some time between Began and At

	Change  = "change"  // a policy was changed, or Result is unknown
	Audited = "audited" // the audit of policies shows a change

	Born    = "born"    // a process is ready
	Dead    = "dead"    // a process has ended, by a fault or at the end
	Crashed = "crashed" // a process has ended by itself; Error is its state
	Began   = "began"   // a fault is about to act
	Acted   = "acted"   // it was seen to act: Result is what was seen
	Ended   = "ended"   // it has ended
	Over    = "over"    // the load is over, and clients are about to be stopped
	Stopped = "stopped" // all processes have been stopped, at the end
	Remains = "remains" // a lock was left after all processes had stopped for a TTL
	Total   = "total"   // the sum of all registers: Base at the beginning, Version at the end
	Open    = "open"    // a saga that has not ended
	Closed  = "closed"  // a saga has ended: Result is its status, Error its failure, and Undo is set if it was planned to fail
)

// Values of Record.Result.
const (
	granted = "granted"
	refused = "refused"
	done    = "done"
	lost    = "lost"
	unknown = "unknown" // the operation may have been applied
	failed  = "failed"  // it was not applied
	tried   = "try"
	queued  = "queue"
)

// Log is the log of one process.
type Log = harness.Log[Record]

// OpenLog opens the log of a process in dir. A record that names no process is about this one.
func OpenLog(dir, process string, slot int) (*Log, error) {
	return harness.OpenLog(dir, process, func(r *Record) {
		if r.Process == "" {
			r.Process, r.Slot = process, slot
		}
		if r.At == 0 {
			r.At = now()
		}
	})
}

// ReadLogs returns the records of all logs in dir, in the order of time.
func ReadLogs(dir string) ([]Record, error) {
	return harness.ReadLogs(dir, func(r *Record) int64 { return r.At })
}
