package wire

import (
	"errors"
	"fmt"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// TellAncestors notes in the *lockcore.BusyError of a run, if err is one, that an ancestor of its workflow holds the lock: one that
// waits for its child never lets go, and no search finds such a deadlock.
func TellAncestors(err error, run Run, ancestors []string) {
	var busy *lockcore.BusyError
	if len(ancestors) == 0 || !errors.As(err, &busy) {
		return
	}
	for _, h := range busy.Holders {
		of, _, err := ParseLockID(h.LockID)
		if err == nil && of.Namespace == run.Namespace && slices.Contains(ancestors, of.WorkflowID) {
			busy.Note = fmt.Sprintf("it is held by the workflow %q, an ancestor of this one: if that waits for its child, neither goes on; "+
				"release the lock before, or leave it out of the child", of.WorkflowID)
			return
		}
	}
}
