package wire

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

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

// DecodeGuard reads the payload of [HeaderKey]. The errors are those of [DecodeHeader]: a guard that the worker does not understand must not be
// ignored.
func DecodeGuard(dc converter.DataConverter, namespace, workflowID string, p *commonpb.Payload) (Guard, error) {
	g, err := DecodeHeader[Guard](dc, namespace, workflowID, p, HeaderKey)
	if err == nil {
		err = g.check()
	}
	if err != nil {
		return Guard{}, err
	}
	return g, nil
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

type leasesKey struct{}

// ContextWithLeases returns the context of a running step, whose leases the function returns as they are at the time of the call.
func ContextWithLeases(ctx context.Context, leases func() []lockcore.Lease) context.Context {
	return context.WithValue(ctx, leasesKey{}, leases)
}

// LeasesFrom returns the current leases of the step whose context ctx is. ok is false if the step is not guarded.
func LeasesFrom(ctx context.Context) (leases []lockcore.Lease, ok bool) {
	f, ok := ctx.Value(leasesKey{}).(func() []lockcore.Lease)
	if !ok {
		return nil, false
	}
	return f(), true
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

// Resources returns resources of which the workflow knows nothing.
func Resources(core ...lockcore.Resource) []Resource {
	resources := make([]Resource, len(core))
	for i, r := range core {
		resources[i].Resource = r
	}
	return resources
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

const (
	// compressFrom is the size of JSON from which on a header is compressed: 480 steps in one workflow task may have guards of 100 names each,
	// and the server accepts 4 MB.
	compressFrom = 2000
	// maxHeader bounds what a compressed header may contain.
	maxHeader = 4 << 20
)

// compressed is the JSON of a compressed header.
type compressed struct {
	Gzip []byte `json:"gzip"`
}

// EncodeHeader makes the payload of [HeaderKey] or [DueKey] by a data converter, as for a payload of the workflow. If dc is nil, the payload is
// plain JSON. Over 2 kB are compressed.
func EncodeHeader(dc converter.DataConverter, namespace, workflowID string, v any) (*commonpb.Payload, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write a header: %w", err)
	}
	if len(text) > compressFrom {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid; each replay compresses again
		_, _ = w.Write(text)                            // a buffer accepts everything
		_ = w.Close()
		v = compressed{b.Bytes()}
	}
	if dc == nil {
		dc = converter.GetDefaultDataConverter()
	}
	p, err := ofWorkflow(dc, namespace, workflowID).ToPayload(v)
	if err != nil {
		return nil, fmt.Errorf("lockstep: encode a header by worker.Options.DataConverter: %w", err)
	}
	return p, nil
}

// DecodeHeader reads what EncodeHeader has made. Even with a data converter it accepts plain JSON, so that workers can be given the
// converter one after the other. The error is a *lockcore.InvalidError, or a retryable failure if this worker cannot decode what another
// one has encoded: the step must not run without its locks, and the next attempt may reach a worker that can.
func DecodeHeader[T any](dc converter.DataConverter, namespace, workflowID string, p *commonpb.Payload, header string) (v T, err error) {
	var text json.RawMessage
	reason := "it lacks the worker.Options.DataConverter of the workflow's worker"
	if dc != nil {
		if err = ofWorkflow(dc, namespace, workflowID).FromPayload(p, &text); err != nil {
			reason = Cut(err.Error(), 128)
		}
	}
	if dc == nil || err != nil {
		switch string(p.GetMetadata()[converter.MetadataEncoding]) {
		case converter.MetadataEncodingJSON, "":
			text = p.GetData()
		default:
			return v, temporal.NewApplicationError("lockstep: this worker cannot read the locks of the step: "+reason, FailureUnavailable)
		}
	}
	if err = decodeText(text, &v); err != nil {
		var zero T
		return zero, &lockcore.InvalidError{Field: "header " + header, Value: Cut(err.Error(), 128), Bound: "what Lockstep's workflow side writes"}
	}
	return v, nil
}

// decodeText decodes JSON that may be compressed.
func decodeText(text []byte, v any) error {
	var c compressed
	if json.Unmarshal(text, &c) == nil && len(c.Gzip) > 0 {
		r, err := gzip.NewReader(bytes.NewReader(c.Gzip))
		if err != nil {
			return err
		}
		if text, err = io.ReadAll(io.LimitReader(r, maxHeader)); err != nil {
			return err
		}
	}
	return json.Unmarshal(text, v)
}

func ofWorkflow(dc converter.DataConverter, namespace, workflowID string) converter.DataConverter {
	return converter.WithDataConverterSerializationContext(dc, converter.WorkflowSerializationContext{Namespace: namespace, WorkflowID: workflowID})
}

// toPayload encodes a header. Headers do not pass through the user's data converter, so that workers with another one can read them. For
// guards, whose resource names would be readable in the history, there is [EncodeHeader]. what names the content, for errors.
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

// RuleFacts contains what a rule must know about the workflow code that schedules an activity. A worker without a rule for the
// activity ignores it.
type RuleFacts struct {
	// Owner is the owner of the lock ID; absent means the workflow.
	Owner Owner `json:"owner,omitzero"`
	// Saga is the innermost saga of the step, as in [Guard]; absent outside of sagas.
	Saga string `json:"saga,omitempty"`
	// NeverVictim keeps a compensation from being chosen as the victim of a deadlock.
	NeverVictim bool `json:"neverVictim,omitempty"`
}

// EncodeRuleFacts makes the payload of [RuleFactsKey]. It is plain JSON, so that workers with any data converter can read it.
func EncodeRuleFacts(f RuleFacts) (*commonpb.Payload, error) {
	return toPayload("the facts for a rule", f)
}

// DecodeRuleFacts reads the payload of [RuleFactsKey]; nil is the zero value. The error is a *lockcore.InvalidError.
func DecodeRuleFacts(p *commonpb.Payload) (RuleFacts, error) {
	if p == nil {
		return RuleFacts{}, nil
	}
	return fromPayload[RuleFacts](p, RuleFactsKey, "the facts for a rule")
}

// RuleFacts returns the facts that a guard contains.
func (g Guard) RuleFacts() RuleFacts {
	return RuleFacts{Owner: g.Owner, Saga: g.Saga, NeverVictim: g.NeverVictim}
}
