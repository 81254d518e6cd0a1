package activities

import (
	"context"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Leases returns what the running step holds now, as last renewed; nil if ctx is not that of a
// guarded step. It asks nothing of the database.
func Leases(ctx context.Context) []lockcore.Lease {
	leases, _ := wire.LeasesFrom(ctx)
	return leases
}

// Fence returns the fence of one resource that the running step holds; ok is false if it does not.
func Fence(ctx context.Context, resource string) (fence int64, ok bool) {
	for _, l := range Leases(ctx) {
		if l.Resource == resource {
			return l.Fence, true
		}
	}
	return 0, false
}
