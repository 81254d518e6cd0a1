package interceptors

import (
	"fmt"
	"sync"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
)

// unlockedCalls logs calls under a guard that a guard cannot lock, once for each type. They are not refused, because one context often
// serves several calls.
type unlockedCalls struct{ logged sync.Map }

// check logs an error if steps under ctx take locks. what names the kind of the call.
func (u *unlockedCalls) check(ctx workflow.Context, what, name string) {
	if u == nil || !runstate.GuardsSteps(ctx) || workflow.IsReplaying(ctx) {
		return
	}
	if _, logged := u.logged.LoadOrStore(what+" "+name, true); !logged {
		workflow.GetLogger(ctx).Error(fmt.Sprintf("lockstep: a guard around a %s locks nothing while that runs: take the locks by workflows.Lock, "+
			"or call it under workflows.Unguarded", what), "type", name)
	}
}

// nexusName returns the name of a Nexus operation, which is its reference or a text.
func nexusName(in interceptor.ExecuteNexusOperationInput) string {
	if operation, ok := in.Operation.(interface{ Name() string }); ok {
		return operation.Name()
	}
	return fmt.Sprint(in.Operation)
}
