package wire

import (
	commonpb "go.temporal.io/api/common/v1"
)

// RuleFactsKey carries the [RuleFacts] of an activity without a guard.
const RuleFactsKey = "lockstep-rule"

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
