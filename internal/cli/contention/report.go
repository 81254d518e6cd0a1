package contention

import "time"

// Report is what traces tell of the contention for locks. Its JSON is what `lockstep contention --json` prints: fields are
// only ever appended. Durations are in seconds.
type Report struct {
	Read Reading `json:"read"`
	// From and To span all waits and holds.
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Totals Totals    `json:"totals"`
	// Resources come with the greatest total wait first.
	Resources []Resource `json:"resources"`
	// Owners come with those first who kept others waiting longest.
	Owners []Owner `json:"owners"`
	// Conclusion says in a few sentences what the waiting comes from, and what to do.
	Conclusion []Finding `json:"conclusion"`
	// Roots are those at whose door the waiting ends, each with the tree of those that waited for it, the greatest first.
	Roots []Root `json:"roots"`
	// Types say which workflow types waited for which, longest first.
	Types []TypePair `json:"types"`
	// Load is over all resources, in equal steps from From to To.
	Load []Load `json:"load"`
	// Overlong are holds that stood much longer than the steps under them ran, the worst first.
	Overlong []Overlong `json:"overlong"`
	// Losses are the holds that ended otherwise than by their own release, and the steps that found a lock lost.
	Losses    []Loss     `json:"losses"`
	Deadlocks []Deadlock `json:"deadlocks"`
	// Holds and Waits are in the order of their starts. Blockers and trees refer to them by index.
	Holds []Hold `json:"holds"`
	Waits []Wait `json:"waits"`
}

// Reading is what was read, and what could not be.
type Reading struct {
	Files int `json:"files"`
	// Spans are all, and LockSpans those of Lockstep.
	Spans     int `json:"spans"`
	LockSpans int `json:"lockSpans"`
	// Broken are lines, or documents, that are neither OTLP's JSON nor Jaeger's, Malformed are lock spans that lack what
	// they need, and Duplicates those that were read before.
	Broken     int `json:"broken"`
	Malformed  int `json:"malformed"`
	Duplicates int `json:"duplicates"`
	// Repeated are lock spans that tell of a hold or a wait of which another one had told: two processes wrote it. Spans of one hold at different
	// times are not: parts of it told each of its own stay.
	Repeated int `json:"repeated"`
	// Problems tells of the first of each, with file and line.
	Problems []string `json:"problems,omitempty"`
	// Unreadable are files and folders inside of a folder that was named, which could not be opened.
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
	// Unexplained is how much of the waiting no hold that was read explains: hand-overs from one to the next, and missing spans.
	Unexplained float64 `json:"unexplained"`
	// HandOver is how much of Unexplained it had been granted to a waiter that had not taken it yet.
	HandOver float64 `json:"handOver"`
}

// Distribution is of durations, in seconds. Percentiles are nearest-rank.
type Distribution struct {
	Count int     `json:"count"`
	Total float64 `json:"total"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Resource is what was waited for.
type Resource struct {
	Name string       `json:"name"`
	Wait Distribution `json:"wait"`
	Hold Distribution `json:"hold"`
	// Busy is the share, 0 to 1, of the time from its first hold or wait to its last in which it was held, and Contended that in which
	// a request waited.
	Busy      float64 `json:"busy"`
	Contended float64 `json:"contended"`
	// Queue is the length of the queue over time, whenever it changes, and LongestQueue its maximum.
	Queue        []QueueLength `json:"queue"`
	LongestQueue int           `json:"longestQueue"`
	// Why says in a sentence what the waiting comes from.
	Why string `json:"why"`
	// Unexplained is how much of the waiting no hold that was read explains, and HandOver how much of that it had been granted to a waiter that
	// had not taken it yet.
	Unexplained float64 `json:"unexplained"`
	HandOver    float64 `json:"handOver"`
}

// QueueLength is the length of a queue from At on.
type QueueLength struct {
	At     time.Time `json:"at"`
	Length int       `json:"length"`
}

// Hold is one hold of one resource.
type Hold struct {
	Resource string `json:"resource"`
	LockID   string `json:"lockId"`
	Owner    string `json:"owner"`
	// Workflow and Run are those of the lock ID, if it is that of a Temporal workflow run.
	Workflow string `json:"workflow,omitempty"`
	Run      string `json:"run,omitempty"`
	// WorkflowType is empty if no span that was read says it.
	WorkflowType string    `json:"workflowType,omitempty"`
	Mode         string    `json:"mode"`
	Fence        int64     `json:"fence"`
	Start        time.Time `json:"start"`
	End          time.Time `json:"end"`
	// Outcome is released, expired, revoked, orphaned, or open if only its acquire was read.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	// EndedBy is who took the room of a hold that had expired, and ExpiredAt when its promise had ended.
	EndedBy   string    `json:"endedBy,omitempty"`
	ExpiredAt time.Time `json:"expiredAt,omitzero"`
	// DrainedUntil is until when parts of it may have kept others out after its end, since they may have trusted their leases.
	DrainedUntil time.Time `json:"drainedUntil,omitzero"`
	Host         string    `json:"host,omitempty"`
	Trace        string    `json:"trace,omitempty"`
	Span         string    `json:"span,omitempty"`
	// WorkerDied says that a worker died, or hung, while it held.
	WorkerDied *Death `json:"workerDied,omitempty"`
	// Steps ran under the hold.
	Steps []Step `json:"steps,omitempty"`
	// Blocked is for how long it kept others waiting, in all, and Blocks are those waits.
	Blocked float64 `json:"blocked"`
	Blocks  []int   `json:"blocks,omitempty"`
}

// Step is a part's stay under a hold: from its entry to when it left, by its process's clock.
type Step struct {
	// Name is the activity's type, or the part.
	Name  string    `json:"name"`
	Part  string    `json:"part,omitempty"`
	Order string    `json:"order,omitempty"`
	Start time.Time `json:"start"`
	// End is, if it was not seen to leave, when the next attempt of its part entered, or else when the hold ended, or its promise did.
	End   time.Time `json:"end"`
	Trace string    `json:"trace,omitempty"`
	Span  string    `json:"span,omitempty"`
	Host  string    `json:"host,omitempty"`
	// EndUnseen says that it was not seen to leave: its process died, or its span was not read.
	EndUnseen bool `json:"endUnseen,omitempty"`
}

// Wait is one wait in the queue of one resource.
type Wait struct {
	Resource     string    `json:"resource"`
	LockID       string    `json:"lockId"`
	Owner        string    `json:"owner"`
	Workflow     string    `json:"workflow,omitempty"`
	Run          string    `json:"run,omitempty"`
	WorkflowType string    `json:"workflowType,omitempty"`
	Mode         string    `json:"mode"`
	Part         string    `json:"part,omitempty"`
	Step         string    `json:"step,omitempty"`
	Start        time.Time `json:"start"`
	End          time.Time `json:"end"`
	// Outcome is granted, deadlock, left or unclaimed.
	Outcome  string `json:"outcome"`
	Position int    `json:"position,omitempty"`
	Trace    string `json:"trace,omitempty"`
	Span     string `json:"span,omitempty"`
	// Hold is what it was granted, -1 if that was not read.
	Hold int `json:"hold"`
	// Blockers are those that were in its way, in the order of time.
	Blockers []Blocker `json:"blockers"`
	// Omitted is how many more holds may have been in its way, beyond the most important ones that Blockers has.
	Omitted int `json:"omitted,omitempty"`
	// Unexplained is what is left of the wait without them, and HandOver how much of that the resource had been granted to a waiter that
	// had not taken it yet.
	Unexplained float64 `json:"unexplained"`
	HandOver    float64 `json:"handOver,omitempty"`
}

// Blocker is a hold that was in the way of a wait.
type Blocker struct {
	// Hold is its index, -1 if its span was not read; then what the wait says of it is all that is known.
	Hold   int    `json:"hold"`
	LockID string `json:"lockId"`
	Owner  string `json:"owner"`
	Fence  int64  `json:"fence,omitempty"`
	// Workflow, Step, Trace and Span are of the step that held, as far as they are known.
	Workflow string `json:"workflow,omitempty"`
	Step     string `json:"step,omitempty"`
	Trace    string `json:"trace,omitempty"`
	Span     string `json:"span,omitempty"`
	// BetweenSteps says that no step ran meanwhile: Step is the last that had.
	BetweenSteps bool `json:"betweenSteps,omitempty"`
	// From and To are the part of the wait that it was in the way, in seconds since the wait began.
	From float64 `json:"from"`
	To   float64 `json:"to"`
	// Named says that the wait's own span names it; else it follows from times and fences.
	Named bool `json:"named"`
	// Last says that its end let the wait in.
	Last bool `json:"last,omitempty"`
}

// Owner is a party, and what it made others wait for, and waited itself.
type Owner struct {
	Name string `json:"name"`
	// Blocked is for how long others waited for it, in all, in BlockedWaits waits, and Waited how long it waited itself.
	Blocked      float64 `json:"blocked"`
	BlockedWaits int     `json:"blockedWaits"`
	Waited       float64 `json:"waited"`
	Held         float64 `json:"held"`
	// Worst is the resource on which it kept others waiting longest.
	Worst string `json:"worst,omitempty"`
}

// Overlong is a hold that stood much longer than steps ran under it.
type Overlong struct {
	Hold    int     `json:"hold"`
	Held    float64 `json:"held"`
	Ran     float64 `json:"ran"`
	Blocked float64 `json:"blocked"`
}

// Loss is a hold that ended otherwise than by its own release, or a step that found its lock lost.
type Loss struct {
	// Hold is -1 if only the step is known of.
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

// Deadlock is one that was ended.
type Deadlock struct {
	At     time.Time `json:"at"`
	Victim string    `json:"victim"`
	// Cycle tells who waited for whom, and WorkflowTypes are the types of these, each once, as far as they are known.
	Cycle         string   `json:"cycle"`
	WorkflowTypes []string `json:"workflowTypes,omitempty"`
	Trace         string   `json:"trace,omitempty"`
	Span          string   `json:"span,omitempty"`
	// Resource is what the victim waited for.
	Resource string `json:"resource,omitempty"`
	LockID   string `json:"lockId,omitempty"`
}
