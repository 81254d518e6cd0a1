package activities

import (
	"context"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Leases returns the leases of the running step, as last renewed; nil if ctx is not the context of a guarded step. It does no I/O.
func Leases(ctx context.Context) []lockcore.Lease {
	leases, _ := wire.LeasesFrom(ctx)
	return leases
}

// Fence returns the fence of a resource that the running step holds. ok is false if the step does not hold it.
func Fence(ctx context.Context, resource string) (fence int64, ok bool) {
	for _, l := range Leases(ctx) {
		if l.Resource == resource {
			return l.Fence, true
		}
	}
	return 0, false
}
