package contention

import "time"

// Report describes the contention for locks that traces show. Its JSON is the output of `lockstep contention --json`: fields are only
// ever appended. Durations are in seconds. Fields that refer to holds and waits are places in Holds and Waits, -1 if that one was not read.
type Report struct {
	Read Reading `json:"read"`
	// From and To span all waits and holds.
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Totals Totals    `json:"totals"`
	// Resources are ordered by their total wait, Owners by how long they kept others waiting; the greatest comes first, also in Roots and Types.
	Resources []Resource `json:"resources"`
	Owners    []Owner    `json:"owners"`
	// Conclusion explains in a few sentences where the waiting comes from, and what to do.
	Conclusion []Finding  `json:"conclusion"`
	Roots      []Root     `json:"roots"`
	Types      []TypePair `json:"types"`
	// Load covers all resources, in equal steps from From to To.
	Load      []Load     `json:"load"`
	Overlong  []Overlong `json:"overlong"`
	Losses    []Loss     `json:"losses"`
	Deadlocks []Deadlock `json:"deadlocks"`
	// Holds and Waits are in the order of their starts.
	Holds []Hold `json:"holds"`
	Waits []Wait `json:"waits"`
	// Members are those of pools, ordered by the total wait of the requests that got them. Priorities are in their order, 1 first, and
	// empty if all requests that waited had the usual one.
	Members    []Member   `json:"members"`
	Priorities []Priority `json:"priorities"`
}

// Member sums up the holds of one member of a pool, and the waits that led to them.
type Member struct {
	Resource string       `json:"resource"`
	Name     string       `json:"member"`
	Wait     Distribution `json:"wait"`
	Hold     Distribution `json:"hold"`
}

// Priority sums up the waits of requests with one priority.
type Priority struct {
	Priority int          `json:"priority"`
	Wait     Distribution `json:"wait"`
}

// Reading counts what was read, and what could not be.
type Reading struct {
	Files int `json:"files"`
	// Spans are all spans, LockSpans those of Lockstep.
	Spans     int `json:"spans"`
	LockSpans int `json:"lockSpans"`
	// Broken are lines or documents in no known format, Malformed lock spans without a necessary attribute or with a text that is too long, and Duplicates lock spans that
	// were read before.
	Broken     int `json:"broken"`
	Malformed  int `json:"malformed"`
	Duplicates int `json:"duplicates"`
	// Repeated are lock spans about a hold or a wait of which another process wrote a span too. Spans of the parts of a hold, at different
	// times, do not count.
	Repeated int `json:"repeated"`
	// Problems describes the first of each, with file and line.
	Problems []string `json:"problems,omitempty"`
	// Unreadable are files and folders, inside a folder that was named, which could not be opened.
	Unreadable int `json:"unreadable,omitempty"`
}

// Totals are over all resources.
type Totals struct {
	Acquisitions int `json:"acquisitions"`
	// Waited are the acquisitions that had to wait.
	Waited    int          `json:"waited"`
	Wait      Distribution `json:"wait"`
	Hold      Distribution `json:"hold"`
	Deadlocks int          `json:"deadlocks"`
	Lost      int          `json:"lost"`
	Expired   int          `json:"expired"`
	// Unexplained is the waiting that no hold explains: hand-overs, and missing spans. HandOver is the part in which the resource had been
	// granted to a waiter that had not taken it yet.
	Unexplained float64 `json:"unexplained"`
	HandOver    float64 `json:"handOver"`
}

// Distribution is of durations. Percentiles are nearest-rank.
type Distribution struct {
	Count int     `json:"count"`
	Total float64 `json:"total"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Resource sums up the holds and waits of one resource.
type Resource struct {
	Name string       `json:"name"`
	Wait Distribution `json:"wait"`
	Hold Distribution `json:"hold"`
	// Busy and Contended are shares, 0 to 1, of the time from the first hold or wait to the last: when it was held, and when a request waited.
	Busy      float64 `json:"busy"`
	Contended float64 `json:"contended"`
	// Queue has the length of the queue whenever it changes, and LongestQueue is its maximum.
	Queue        []QueueLength `json:"queue"`
	LongestQueue int           `json:"longestQueue"`
	// Why explains in a sentence where the waiting comes from.
	Why string `json:"why"`
	// Unexplained and HandOver are those of Totals, for this resource.
	Unexplained float64 `json:"unexplained"`
	HandOver    float64 `json:"handOver"`
}

// QueueLength is the length of a queue from At on.
type QueueLength struct {
	At     time.Time `json:"at"`
	Length int       `json:"length"`
}

// Subject has the fields that holds and waits share.
type Subject struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId"`
	Owner    string `json:"owner"`
	// Workflow and Run are set if the lock ID is that of a Temporal workflow, WorkflowType if a span that was read names it.
	Workflow     string `json:"workflow,omitempty"`
	Run          string `json:"run,omitempty"`
	WorkflowType string `json:"workflowType,omitempty"`
	Mode         string `json:"mode"`
	// Member is the member of a pool that was held or granted.
	Member string `json:"member,omitempty"`
}

// Hold is one hold of one resource.
type Hold struct {
	Subject
	Fence int64     `json:"fence"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Outcome is released, expired, revoked, orphaned, or open if only an acquire was read.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	// EndedBy is the lock ID that evicted the hold after it had expired, at ExpiredAt.
	EndedBy   string    `json:"endedBy,omitempty"`
	ExpiredAt time.Time `json:"expiredAt,omitzero"`
	// DrainedUntil is the time until which parts of it may have kept others out after its end.
	DrainedUntil time.Time `json:"drainedUntil,omitzero"`
	Host         string    `json:"host,omitempty"`
	Trace        string    `json:"trace,omitempty"`
	Span         string    `json:"span,omitempty"`
	// WorkerDied is set if a worker died, or hung, during the hold.
	WorkerDied *Death `json:"workerDied,omitempty"`
	// Steps ran under the hold.
	Steps []Step `json:"steps,omitempty"`
	// Blocked is the total time that others waited for it, and Blocks are waits that list it as a blocker.
	Blocked float64 `json:"blocked"`
	Blocks  []int   `json:"blocks,omitempty"`
}

// Step is a part of a hold, from its entry until it left, by the clock of its process.
type Step struct {
	// Name is the activity's type, "Lock 1" and so on for a Lock around code of a workflow, or the part.
	Name  string    `json:"name"`
	Part  string    `json:"part,omitempty"`
	Order string    `json:"order,omitempty"`
	Start time.Time `json:"start"`
	// End is, if EndUnseen is set, the time at which the next attempt of the part entered, or at which the hold ended or expired.
	End   time.Time `json:"end"`
	Trace string    `json:"trace,omitempty"`
	Span  string    `json:"span,omitempty"`
	Host  string    `json:"host,omitempty"`
	// EndUnseen is set if no span shows the step's end: its process died, or its span was not read.
	EndUnseen bool `json:"endUnseen,omitempty"`
	// HoldOnly is set for a Lock, or another request for a hold without a step: nothing ran under it that spans show.
	HoldOnly bool `json:"holdOnly,omitempty"`
}

// Death is the death, or hang, of a worker while its step held: the step's attempt has no end.
type Death struct {
	Step string `json:"step"`
	Host string `json:"host,omitempty"`
	// From is the start of the attempt, and To the time at which the hold was freed of it.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Ended is "expired" if another owner evicted the hold, or "retried" if the step's next attempt entered. To is later than that if a
	// compensation had to wait for the dead attempt's TTL.
	Ended string `json:"ended"`
}

// Wait is one wait in the queue of one resource.
type Wait struct {
	Subject
	Part  string    `json:"part,omitempty"`
	Step  string    `json:"step,omitempty"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Outcome is granted, deadlock, left or unclaimed.
	Outcome  string `json:"outcome"`
	Position int    `json:"position,omitempty"`
	Trace    string `json:"trace,omitempty"`
	Span     string `json:"span,omitempty"`
	// Hold is the hold that the wait led to.
	Hold int `json:"hold"`
	// Blockers are the most important holds that were in its way, in the order of time, and Omitted is the number of the others.
	Blockers []Blocker `json:"blockers"`
	Omitted  int       `json:"omitted,omitempty"`
	// Unexplained and HandOver are those of Totals, for this wait.
	Unexplained float64 `json:"unexplained"`
	HandOver    float64 `json:"handOver,omitempty"`
	// Priority is 1, which is first, to 5.
	Priority int `json:"priority,omitempty"`
}

// Blocker is a hold that was in the way of a wait.
type Blocker struct {
	// Hold is -1 if its span was not read; then the wait's own span is the only source.
	Hold   int    `json:"hold"`
	LockID string `json:"lockId"`
	Owner  string `json:"owner"`
	Fence  int64  `json:"fence,omitempty"`
	// Workflow, Step, Trace and Span are those of the step that held, as far as they are known.
	Workflow string `json:"workflow,omitempty"`
	Step     string `json:"step,omitempty"`
	Trace    string `json:"trace,omitempty"`
	Span     string `json:"span,omitempty"`
	// BetweenSteps is set if no step ran in that time: Step is the last that had run.
	BetweenSteps bool `json:"betweenSteps,omitempty"`
	// From and To are when it was in the way, in seconds since the wait began.
	From float64 `json:"from"`
	To   float64 `json:"to"`
	// Named is set if the wait's own span names it. Otherwise it follows from times and fences.
	Named bool `json:"named"`
	// Last is set if its end let the wait in.
	Last bool `json:"last,omitempty"`
}

// Owner sums up one owner's holds and waits.
type Owner struct {
	Name string `json:"name"`
	// Blocked is the time that others waited for it, in BlockedWaits waits.
	Blocked      float64 `json:"blocked"`
	BlockedWaits int     `json:"blockedWaits"`
	Waited       float64 `json:"waited"`
	Held         float64 `json:"held"`
	// Worst is the resource for which others waited longest because of it.
	Worst string `json:"worst,omitempty"`
}

// Finding is a sentence of the conclusion. It is present only if the data support it.
type Finding struct {
	// Rule is "unread", "deadlocks", "dead-workers", "long-holds", "hand-overs", "hot", or, if none of them applies, "none" or "no-waits".
	Rule string `json:"rule"`
	// Text describes the finding, and Advice a remedy; both are sentences without their full stops.
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"`
	// Waited is the waiting in question, and Count the number of deadlocks, holds or waits.
	Waited float64 `json:"waited,omitempty"`
	Count  int     `json:"count,omitempty"`
}

// Root is the root of a tree of blocking: an owner for whose holds others waited while it waited for nothing itself.
type Root struct {
	Owner        string `json:"owner"`
	WorkflowType string `json:"workflowType,omitempty"`
	// Caused is the time that others waited because of it, directly and through others, in Waits waits.
	Caused float64 `json:"caused"`
	Waits  int     `json:"waits"`
	// Hold caused most of that. Resource is what it held, and Did describes how it spent the time.
	Hold     int    `json:"hold"`
	Resource string `json:"resource"`
	Did      string `json:"did"`
	// Waiters waited for it directly; the most expensive comes first. Omitted is the number of the others.
	Waiters []Waiter `json:"waiters"`
	Omitted int      `json:"omitted,omitempty"`
}

// Waiter is an owner that waited for the one above it in a tree.
type Waiter struct {
	Owner        string `json:"owner"`
	WorkflowType string `json:"workflowType,omitempty"`
	Resource     string `json:"resource"`
	Step         string `json:"step,omitempty"`
	// Waited is the time that it waited because of the root, and Total adds the waits for it at the same time.
	Waited float64 `json:"waited"`
	Total  float64 `json:"total"`
	// Wait is the longest of its waits here.
	Wait    int      `json:"wait"`
	Waiters []Waiter `json:"waiters,omitempty"`
	Omitted int      `json:"omitted,omitempty"`
}

// TypePair sums up how long workflows of one type waited for locks that workflows of another type held.
type TypePair struct {
	// Waiter and Blocker are workflow types, empty if no span that was read names them.
	Waiter  string `json:"waiter"`
	Blocker string `json:"blocker"`
	// A wait counts for each type that was in its way.
	Waited float64 `json:"waited"`
	Waits  int     `json:"waits"`
	// Steps has the same by step, longest first.
	Steps []StepPair `json:"steps"`
}

// StepPair sums up how long one step waited for locks that were held in, or since, another step.
type StepPair struct {
	Waiter  string  `json:"waiter"`
	Blocker string  `json:"blocker"`
	Waited  float64 `json:"waited"`
	Waits   int     `json:"waits"`
}

// Load is the mean number of holds and waits at a time, from At until the next Load.
type Load struct {
	At      time.Time `json:"at"`
	Held    float64   `json:"held"`
	Waiting float64   `json:"waiting"`
}

// Overlong is a hold that lasted much longer than steps ran under it.
type Overlong struct {
	Hold    int     `json:"hold"`
	Held    float64 `json:"held"`
	Ran     float64 `json:"ran"`
	Blocked float64 `json:"blocked"`
}

// Loss is a hold that did not end by a release, or a step that found its lock lost.
type Loss struct {
	// Hold is -1 if only the step is known.
	Hold     int       `json:"hold"`
	Resource string    `json:"resource"`
	LockID   string    `json:"lockId"`
	Owner    string    `json:"owner,omitempty"`
	At       time.Time `json:"at"`
	// Outcome is expired, revoked, orphaned or lost.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Trace   string `json:"trace,omitempty"`
	Span    string `json:"span,omitempty"`
}

// Deadlock is a deadlock that was ended.
type Deadlock struct {
	At     time.Time `json:"at"`
	Victim string    `json:"victim"`
	// Cycle describes the waits for one another, and WorkflowTypes are the types in it, each once, if all of them are known.
	Cycle         string   `json:"cycle"`
	WorkflowTypes []string `json:"workflowTypes,omitempty"`
	Trace         string   `json:"trace,omitempty"`
	Span          string   `json:"span,omitempty"`
	// Resource and LockID are those of the victim's wait.
	Resource string `json:"resource,omitempty"`
	LockID   string `json:"lockId,omitempty"`
}
