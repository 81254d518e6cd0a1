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

// Member returns the member of a pool that the running step holds, such as "phone-2" of "phones". ok is false if the step
// does not hold one.
func Member(ctx context.Context, pool string) (member string, ok bool) {
	for _, l := range Leases(ctx) {
		if l.Resource == pool {
			return l.Member, l.Member != ""
		}
	}
	return "", false
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
