package protocol

import (
	"fmt"
	"slices"
	"time"

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
	return g, nil
}

// IsPast tells that the step was scheduled by another run than the one which has it, before a reset.
func (g Guard) IsPast(run string) bool { return g.Run != "" && g.Run != run }

// Closed are the runs with whose locks nobody goes on, as far as the guard tells: that in whose name the run before a reset has
// locked is one.
func (g Guard) Closed(run string) []string {
	if g.IsPast(run) && g.LockRun != "" {
		return append(slices.Clone(g.Former), g.LockRun)
	}
	return g.Former
}

// Request is what the guard asks of the locks, for a step of a run and an attempt.
func (g Guard) Request(run Run, attempt int32, comment string) lockcore.Request {
	if g.IsPast(run.RunID) {
		g.LockRun, g.Resources = "", slices.Clone(g.Resources)
		for i := range g.Resources {
			g.Resources[i].Held = false
		}
	}
	if g.LockRun != "" {
		run.RunID = g.LockRun
	}
	owner := g.Owner
	if owner == "" {
		owner = run.WorkflowID
	}
	keep, holdTTL := g.Scope == ScopeSaga, time.Duration(g.HoldTTL)
	if !keep {
		holdTTL = 0
	}
	return lockcore.Request{
		LockID:    run.LockID(),
		Resources: g.Resources,
		Part:      g.Part,
		Order:     lockcore.Order{Schedule: g.Schedule, Attempt: uint32(max(attempt, 0))},
		TTL:       time.Duration(g.TTL),
		Keep:      keep,
		HoldTTL:   holdTTL,
		Reacquire: g.Reacquire,
		NewFence:  g.NewFence,
		Owner:     Cut(owner, MaxName),
		Started:   g.Started, NeverVictim: g.NeverVictim,
		Comment: Cut(comment, 1024),
	}
}
