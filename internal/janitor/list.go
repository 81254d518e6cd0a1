package janitor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// suspect is what was listed of one run.
type suspect struct {
	workflowID, run string
	// lockID is that of the first entry, for logs.
	lockID  string
	entries []lockcore.Status
	// ends is when the first of the promises ends.
	ends time.Duration
}

// list finds the runs to ask about, the one whose promise ends first before the others, and tends
// the queues in which they stand. It leaves out parts that run or drain, since they end by
// themselves.
func (r *round) list(ctx context.Context) ([]*suspect, error) {
	suspects := map[[2]string]*suspect{} // by workflow ID and run
	for s, err := range r.Locker.Status(ctx, lockcore.Filter{
		LockIDPrefix: wire.NamespacePrefix(r.NamespaceID), Contended: true,
		States: []lockcore.State{lockcore.StateHolding, lockcore.StateClaimed, lockcore.StateWaiting},
	}) {
		switch {
		case err != nil:
			return nil, err
		case s.State != lockcore.StateHolding:
			r.Locker.WatchFor(s.Resource)
		case s.HoldTTL == 0:
			continue
		}
		r.result.Listed++
		of, _, err := wire.ParseLockID(s.LockID)
		if err != nil || of.WorkflowID == "" || s.Run == "" {
			r.result.Unknown++
			continue
		}
		key := [2]string{of.WorkflowID, s.Run}
		found := suspects[key]
		if found == nil {
			found = &suspect{workflowID: key[0], run: key[1], lockID: s.LockID, ends: s.ExpiresIn}
			suspects[key] = found
		}
		found.entries = append(found.entries, s)
		found.ends = min(found.ends, s.ExpiresIn)
	}
	return slices.SortedFunc(maps.Values(suspects), func(a, b *suspect) int {
		return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.lockID+"/"+a.run, b.lockID+"/"+b.run))
	}), nil
}
