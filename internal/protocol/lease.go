package protocol

import (
	"context"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

type leasesKey struct{}

// ContextWithLeases puts a way to the leases of the running step into its context.
func ContextWithLeases(ctx context.Context, leases func() []lockcore.Lease) context.Context {
	return context.WithValue(ctx, leasesKey{}, leases)
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
