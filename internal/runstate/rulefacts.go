package runstate

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// WriteRuleFacts writes what a rule must know of an activity without a guard into the activity's header. It writes nothing outside of sagas
// and compensations with the default owner, or if the header was dropped: then the rule locks in the name of the workflow.
func (s *State) WriteRuleFacts(ctx workflow.Context, header Header) {
	a := stepContextOf(ctx)
	facts := wire.RuleFacts{Owner: cmp.Or(a.owner, s.owner), NeverVictim: a.compensating}
	facts.Owner.Name = wire.Cut(facts.Owner.Name, wire.MaxName)
	if a.saga != nil {
		facts.Saga = a.saga.id
	}
	if facts.Owner == (wire.Owner{Workflow: workflow.GetInfo(ctx).WorkflowExecution.ID}) {
		facts.Owner = wire.Owner{}
	}
	if header == nil || facts == (wire.RuleFacts{}) {
		return
	}
	p, err := wire.EncodeRuleFacts(facts)
	if err != nil {
		panic(err) // texts are always encoded
	}
	header[wire.RuleFactsKey] = p
}

// GuardsSteps reports whether steps under ctx take locks.
func GuardsSteps(ctx workflow.Context) bool { return stepContextOf(ctx).locks != nil }
