package protocol

// Names of the orphan reaper: a workflow, which a schedule starts, and the activity that it runs.
const (
	WorkflowReap = "lockstep.Reap"
	ActivityReap = "lockstep.Reap"
)

// ReapParams is the input of [WorkflowReap] and of [ActivityReap].
type ReapParams struct {
	// MissingAfter is how long a lock must have given no sign of life before it is released for a run that the
	// namespace does not know, and that no earlier reap has seen open. Absent means an hour.
	MissingAfter Duration `json:"missingAfter,omitempty"`
}

// ReapResult is the result of [WorkflowReap] and of [ActivityReap]. Each of the Runs is counted once in one of Open,
// Closed, Missing, Unknown and Failed.
type ReapResult struct {
	// Listed are the locks and places in queues that runs of the namespace have.
	Listed int `json:"listed"`
	// Runs are the workflow runs that they belong to, and Asked those that Temporal was asked about.
	Runs  int `json:"runs"`
	Asked int `json:"asked"`
	// Open are runs that go on, or whose workflow does after they continued as new.
	Open int `json:"open"`
	// Closed are runs of which everything listed was released: Released locks and places.
	Closed   int `json:"closed"`
	Released int `json:"released"`
	// Missing are runs that their namespace does not know, and whose locks gave signs of life too recently to be released.
	Missing int `json:"missing"`
	// Unknown are runs that Temporal could not be asked about: their name is not one that it knows.
	Unknown int `json:"unknown"`
	// Failed are runs where the question or the release failed.
	Failed int `json:"failed"`
}
