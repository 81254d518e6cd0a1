package main

import (
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/workflows"
)

// openLock is the Lock around a node.
type openLock struct {
	hold  *workflows.Hold
	scope string
}

type lockKey struct{}

// verify asks whether the locks of the innermost Lock are held, or those of the saga if there is no Lock. It logs the question and
// the answer.
func (w *walk) verify(ctx workflow.Context, s *workflows.Saga, instance string, n *Node) error {
	lock, inLock := ctx.Value(lockKey{}).(*openLock)
	var scope string
	var ask func(workflow.Context) error
	switch {
	case inLock:
		scope, ask = lock.scope, lock.hold.Verify
	case s != nil: // the locks of an inner saga are those of the outermost one
		scope, _, _ = strings.Cut(instance, "/")
		ask = s.Verify
	default:
		return nil
	}
	at := instance + " " + itoa(n.ID)
	w.write(ctx, &Record{What: Asked, Scope: scope, Other: at})
	err := ask(ctx)
	if err == nil {
		w.write(ctx, &Record{What: Verified, Scope: scope, Other: at})
	}
	return err
}
