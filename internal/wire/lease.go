package wire

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

type leasesKey struct{}

// ContextWithLeases puts a way to the leases of the running step into its context.
func ContextWithLeases(ctx context.Context, leases func() []lockcore.Lease) context.Context {
	return context.WithValue(ctx, leasesKey{}, leases)
}

// InlineWait is how long an attempt waits at most where it is for a turn that is near: a moment of a
// slot saves a wait in the history. It leaves most of the attempt's own time to the step.
func InlineWait(info activity.Info) time.Duration {
	wait := 2 * time.Second
	for _, limit := range []time.Duration{info.StartToCloseTimeout, info.HeartbeatTimeout} {
		if limit > 0 {
			wait = min(wait, limit/4)
		}
	}
	return wait
}

// LeasesFrom returns the leases of the step whose context this is, as they are now; ok says whether
// the step is guarded.
func LeasesFrom(ctx context.Context) (leases []lockcore.Lease, ok bool) {
	f, ok := ctx.Value(leasesKey{}).(func() []lockcore.Lease)
	if !ok {
		return nil, false
	}
	return f(), true
}

// Leases turns lockcore's leases into the protocol's.
func Leases(in []lockcore.Lease) []Lease {
	out := make([]Lease, 0, len(in))
	for _, l := range in {
		out = append(out, Lease{
			Resource: l.Resource, LockID: l.LockID, Run: l.Run, Undone: l.Undone, Part: l.Part, Order: l.Order, Mode: l.Mode,
			Fence: l.Fence, FirstFence: l.FirstFence, LeastFence: l.LeastFence, Bars: l.Bars, Left: Duration(l.Left), Joined: l.Joined,
		})
	}
	return out
}

// CoreLeases turns the protocol's leases into lockcore's. They are not trusted until they were renewed.
func CoreLeases(in []Lease) []lockcore.Lease {
	out := make([]lockcore.Lease, 0, len(in))
	for _, l := range in {
		out = append(out, lockcore.Lease{
			Resource: l.Resource, LockID: l.LockID, Run: l.Run, Undone: l.Undone, Part: l.Part, Order: l.Order, Mode: l.Mode,
			Fence: l.Fence, FirstFence: l.FirstFence, LeastFence: l.LeastFence, Bars: l.Bars, Left: time.Duration(l.Left), Joined: l.Joined,
		})
	}
	return out
}
