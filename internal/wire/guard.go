package wire

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// EncodeGuard makes the header's payload. Headers do not pass through the user's data converter, so
// that a step can be read by workers that use another one: resource names stand in the history in
// the clear.
func EncodeGuard(g Guard) (*commonpb.Payload, error) {
	p, err := converter.GetDefaultDataConverter().ToPayload(g)
	if err != nil {
		return nil, fmt.Errorf("lockstep: write the guard of %q: %w", g.Part, err)
	}
	return p, nil
}

// DecodeGuard reads the header's payload. The error is a *lockcore.InvalidError: a guard that cannot be
// understood must not be ignored.
func DecodeGuard(p *commonpb.Payload) (Guard, error) {
	var g Guard
	if err := converter.GetDefaultDataConverter().FromPayload(p, &g); err != nil {
		return Guard{}, &lockcore.InvalidError{Field: "header " + HeaderKey, Value: Cut(err.Error(), 128), Bound: "the JSON of a guard"}
	}
	if g.Scope != ScopeStep && g.Scope != ScopeSaga {
		return Guard{}, &lockcore.InvalidError{
			Field: "scope", Value: fmt.Sprintf("%q", Cut(g.Scope, 64)), Bound: ScopeStep + " or " + ScopeSaga + ", or a newer worker",
		}
	}
	err := cmp.Or(
		CheckNotNegative("ttl", g.TTL, workersDefault), CheckNotNegative("holdTtl", g.HoldTTL, workersDefault),
		CheckNotNegative("maxWait", g.MaxWait, asLongAsItTakes),
	)
	if err != nil {
		return Guard{}, err
	}
	return g, nil
}

// IsPast reports whether the step was scheduled by another run than the one that has it, before a reset.
func (g Guard) IsPast(run string) bool { return g.Run != "" && g.Run != run }

// Keeps reports whether the guard's locks stand without the step: for its saga, or while it waits for the rest of them.
func (g Guard) Keeps() bool { return g.Scope == ScopeSaga || len(g.Resources) > 1 }

// Request is what the guard asks of the locks, for a step of a run and an attempt. In scope step the step has a lock ID of
// its own, which no loss concerns: it takes its locks again each time.
func (g Guard) Request(run Run, attempt int32, comment string) party.Request {
	resources := slices.Clone(g.Resources)
	for i := range resources {
		resources[i].Held = resources[i].Held && !g.IsPast(run.RunID)
	}
	lockID, within, holdTTL := run.LockID(), "", time.Duration(g.HoldTTL)
	if g.Scope == ScopeStep {
		lockID, within, holdTTL = run.StepLockID(g.Part), lockID, 0
	}
	var undo []string
	if g.Undoes != "" {
		undo = []string{run.Part(g.Undoes)}
		if g.Before != "" {
			undo = append(undo, Run{RunID: g.Before}.Part(g.Undoes))
		}
	}
	return party.Request{
		LockID:    lockID,
		Within:    within,
		Run:       run.RunID,
		Resources: resources,
		Part:      run.Part(g.Part),
		Order:     party.Order{Schedule: g.Schedule, Attempt: uint32(max(attempt, 0))},
		TTL:       time.Duration(g.TTL),
		Persist:   g.Keeps(),
		HoldTTL:   holdTTL,
		Reacquire: g.Reacquire || g.Scope == ScopeStep,
		NewFence:  g.NewFence,
		Saga:      g.Saga,
		Undo:      undo,
		Owner:     g.Owner.Of(run),
		Started:   g.Started, NeverVictim: g.NeverVictim,
		Comment: Cut(comment, 1024),
	}
}
