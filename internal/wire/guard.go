package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Guard is the payload of [HeaderKey]: the locks that a step takes at entry.
type Guard struct {
	// Part identifies the step within its run, such as "3/Debit". It is the same for every attempt and every scheduling of the step.
	Part string `json:"part"`
	// Schedule numbers the schedulings of a run, and grows. With the attempt it is the order of the request.
	Schedule uint32 `json:"schedule"`
	// Scope is ScopeStep or ScopeSaga.
	Scope string `json:"scope"`
	// Resources lists what is locked. HeldSince is set if the workflow knows that it holds the resource.
	Resources []Resource `json:"resources"`
	// TTL of the part; absent means the worker's default.
	TTL Duration `json:"ttl,omitempty"`
	// HoldTTL of the hold, in scope saga; absent means the worker's default.
	HoldTTL Duration `json:"holdTtl,omitempty"`
	// Reacquire takes the lock again if it was lost.
	Reacquire bool `json:"reacquire,omitempty"`
	// NewFence requests a new fence even if the lock is held already. A compensation of a step has that of its bar.
	NewFence bool `json:"newFence,omitempty"`
	// Saga is the path of the innermost saga, such as 2/5, by which [ActivityBar] finds its steps; absent outside of sagas.
	Saga string `json:"saga,omitempty"`
	// Owner of the lock ID; absent means the workflow.
	Owner Owner `json:"owner,omitzero"`
	// Park is set if the workflow can handle FailureParked.
	Park bool `json:"park,omitempty"`
	// Try requests the locks without queueing.
	Try bool `json:"try,omitempty"`
	// MaxWait is the rest of the time for which the step may wait; absent means as long as it takes.
	MaxWait Duration `json:"maxWait,omitempty"`
	// Undoes is the Part of the step that this compensation undoes. Its resources include those of the step.
	Undoes string `json:"undoes,omitempty"`
	// Inherits is set in a run that a reset has made. A lock then counts as lost only if there is evidence of a loss, by any run of the
	// workflow since a minute before Started: the runs before it may have released what its history shows as held.
	Inherits bool `json:"inherits,omitempty"`
	// Started is the start of the workflow run.
	Started time.Time `json:"started,omitzero"`
	// NeverVictim keeps the step from being chosen as the victim of a deadlock.
	NeverVictim bool `json:"neverVictim,omitempty"`
	// Run is the run that wrote the guard. If another run executes the step, it was made by a reset and has the step from the run
	// before: then Held is ignored, and the step may have run.
	Run string `json:"run,omitempty"`
	// Collection is the ID of the collection of the locks, if known. A worker with another one refuses.
	Collection string `json:"collection,omitempty"`
	// Ancestors are the workflow IDs of the parent and the root of a child workflow.
	Ancestors []string `json:"ancestors,omitempty"`
}

// check returns a *lockcore.InvalidError for a scope that this version does not know, and for negative durations.
func (g Guard) check() error {
	if g.Scope != ScopeStep && g.Scope != ScopeSaga {
		return &lockcore.InvalidError{
			Field: "scope", Value: fmt.Sprintf("%q", Cut(g.Scope, 64)), Bound: ScopeStep + " or " + ScopeSaga + ", or a newer worker",
		}
	}
	return cmp.Or(
		CheckNotNegative("ttl", g.TTL, workersDefault), CheckNotNegative("holdTtl", g.HoldTTL, workersDefault),
		CheckNotNegative("maxWait", g.MaxWait, asLongAsItTakes),
	)
}

// IsFromOtherRun reports whether another run scheduled the step, before a reset.
func (g Guard) IsFromOtherRun(run string) bool { return g.Run != "" && g.Run != run }

// inherits reports whether runs before a reset may have used or released what the guard names.
func (g Guard) inherits(run Run) bool { return g.Inherits || g.IsFromOtherRun(run.RunID) }

// LostSince returns the time from which on losses of any run of a workflow count as losses of a run that a reset has made. started is the
// start of that run, which a reset keeps; the clocks of the database and of Temporal may differ.
func LostSince(started time.Time) time.Time { return started.Add(-ClockDifference) }

// ClockDifference is the largest expected difference between the clocks of the database and of Temporal.
const ClockDifference = time.Minute

// Keeps reports whether the locks outlast a step's attempt: until the end of its saga, or while the step waits for the rest of them.
func (g Guard) Keeps() bool { return g.Scope == ScopeSaga || len(g.Resources) > 1 }

// Reacquires reports whether the step takes lost locks again, instead of failing.
func (g Guard) Reacquires() bool { return g.Reacquire || g.Scope == ScopeStep }

// Request returns the request that one attempt of the step makes. In scope step the step has a lock ID of its own, to which losses do
// not apply: it takes its locks again each time.
func (g Guard) Request(run Run, attempt int32, comment string) lockcore.StepRequest {
	var lostSince time.Time
	if g.inherits(run) && !g.Reacquires() {
		lostSince = LostSince(g.Started)
	}
	lockID, within, holdTTL := run.LockID(), "", time.Duration(g.HoldTTL)
	if g.Scope == ScopeStep {
		lockID, within, holdTTL = run.StepLockID(g.Part), lockID, 0
	}
	resources, heldSince := CoreResources(g.Resources)
	return lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: lockID, Within: within, Run: run.RunID, Part: run.Part(g.Part), Order: lockcore.Order{Schedule: g.Schedule, Attempt: uint32(max(attempt, 0))}, Saga: g.Saga},

		Resources: resources,
		HeldSince: heldSince,

		TTL:       time.Duration(g.TTL),
		Keep:      g.Keeps(),
		HoldTTL:   holdTTL,
		Reacquire: g.Reacquires(),
		LostSince: lostSince,
		NewFence:  g.NewFence && g.Undoes == "",

		Owner:   g.Owner.Of(run),
		Started: g.Started, NeverVictim: g.NeverVictim,
		Comment: Cut(comment, 1024),
	}
}

// Resource is a resource to lock, with what the workflow knows about it.
type Resource struct {
	lockcore.Resource
	// HeldSince is the schedule number of a request of the same run since which the resource must be kept.
	// If it is not, the error is a *LostError, and nothing is taken. Defaults to 0: no condition.
	HeldSince uint32 `json:"heldSince,omitempty"`
}

// CoreResources returns the resources of a [lockcore.StepRequest], and its HeldSince.
func CoreResources(resources []Resource) (core []lockcore.Resource, heldSince map[string]uint32) {
	for _, r := range resources {
		core = append(core, r.Resource)
		if r.HeldSince > 0 {
			if heldSince == nil {
				heldSince = map[string]uint32{}
			}
			heldSince[r.Name] = r.HeldSince
		}
	}
	return core, heldSince
}

// Merge adds more to the resources and returns the result: one request for each name, the stronger one if several have the same name.
// It does not change its arguments.
func Merge(resources []lockcore.Resource, more ...lockcore.Resource) []lockcore.Resource {
	merged := slices.Clone(resources)
	for _, r := range more {
		i := slices.IndexFunc(merged, func(own lockcore.Resource) bool { return own.Name == r.Name })
		if i < 0 {
			merged = append(merged, r)
			continue
		}
		merged[i] = Stronger(merged[i], r)
	}
	return merged
}

// Stronger returns the stronger of two requests for one resource: exclusive before shared, and a lower limit before a higher one. An
// invalid request wins over a valid one, so that it is refused.
func Stronger(a, b lockcore.Resource) lockcore.Resource {
	switch {
	case isInvalid(a):
	case isInvalid(b):
		a.Mode, a.Limit = b.Mode, b.Limit
	case isShared(a) != isShared(b):
		if isShared(a) {
			a.Mode, a.Limit = b.Mode, b.Limit
		}
	case isShared(a) && b.Limit > 0 && (a.Limit == 0 || b.Limit < a.Limit):
		a.Limit = b.Limit
	}
	return a
}

// isInvalid reports whether no request may have the name, the mode and the limit of r.
func isInvalid(r lockcore.Resource) bool {
	return lockcore.StepRequest{Resources: []lockcore.Resource{r}}.CheckLocks("") != nil
}

func isShared(r lockcore.Resource) bool { return r.Mode == lockcore.ModeShared }

// toPayload encodes a header. Headers do not pass through the user's data converter, so that workers with another one can read them. For
// guards, whose resource names would be readable in the history, there is [EncodeGuardWith]. what names the content, for errors.
func toPayload(what string, v any) (*commonpb.Payload, error) {
	p, err := converter.GetDefaultDataConverter().ToPayload(v)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write %s: %w", what, err)
	}
	return p, nil
}

// fromPayload decodes a header. The error is a *lockcore.InvalidError.
func fromPayload[T any](p *commonpb.Payload, header, what string) (v T, err error) {
	if err := converter.GetDefaultDataConverter().FromPayload(p, &v); err != nil {
		var zero T
		return zero, &lockcore.InvalidError{Field: "header " + header, Value: Cut(err.Error(), 128), Bound: "the JSON of " + what}
	}
	return v, nil
}

// Handover marks a run that continues with the locks of the run before it, which continued as new and did not release them. The
// server also copies headers to retries and to the next runs of a cron schedule; those must ignore the mark.
type Handover struct {
	// From is the run that handed over. Only the run that continues it may use the mark.
	From string `json:"from"`
	// Started is the start of the first of these runs.
	Started time.Time `json:"started,omitzero"`
}

// EncodeHandover makes the payload of [HandoverKey].
func EncodeHandover(h Handover) (*commonpb.Payload, error) {
	return toPayload("the locks that are handed over", h)
}

// DecodeHandover reads the payload of [HandoverKey]. The error is a *lockcore.InvalidError.
func DecodeHandover(p *commonpb.Payload) (Handover, error) {
	return fromPayload[Handover](p, HandoverKey, "a handover")
}

// Owner names the owner of a request: by a name that the user chose, which is a string in JSON, or as a workflow of the same
// namespace. The worker that locks completes it, because only that worker knows the namespace's ID. The zero value is the workflow
// that makes the request.
type Owner struct {
	Name     string
	Workflow string
}

type ownerJSON struct {
	Workflow string `json:"workflow"`
}

// EncodeOwner makes the payload of [OwnerKey].
func EncodeOwner(owner Owner) (*commonpb.Payload, error) { return toPayload("the owner", owner) }

// DecodeOwner reads the payload of [OwnerKey]. The error is a *lockcore.InvalidError.
func DecodeOwner(p *commonpb.Payload) (Owner, error) {
	return fromPayload[Owner](p, OwnerKey, "an owner")
}

// IsZero reports whether the owner is the workflow that makes the request.
func (o Owner) IsZero() bool { return o == Owner{} }

// Of returns the owner as lockcore knows it, for a request of a run.
func (o Owner) Of(run Run) string {
	if o.Name != "" {
		return Cut(o.Name, MaxName)
	}
	if o.Workflow != "" {
		run.WorkflowID = o.Workflow
	}
	return run.Owner()
}

// MarshalJSON writes a string, or an object that names a workflow.
func (o Owner) MarshalJSON() ([]byte, error) {
	if o.Workflow != "" {
		return json.Marshal(ownerJSON{o.Workflow})
	}
	return json.Marshal(o.Name)
}

// UnmarshalJSON reads what MarshalJSON writes. The error is a *lockcore.InvalidError.
func (o *Owner) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &o.Name) == nil {
		return nil
	}
	var workflow ownerJSON
	if err := json.Unmarshal(data, &workflow); err != nil || workflow.Workflow == "" {
		return &lockcore.InvalidError{Field: "owner", Value: Cut(string(data), 64), Bound: `a text, or {"workflow": "…"} with a workflow ID`}
	}
	o.Workflow = workflow.Workflow
	return nil
}
