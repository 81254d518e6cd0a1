package interceptors

import (
	"context"
	"iter"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// locker is what the activity side needs of a *party.Locker.
type locker interface {
	Replaced(ctx context.Context, lockID, run string, resources ...string) ([]string, error)
	CollectionID(ctx context.Context) (string, error)
	Enter(ctx context.Context, req party.Request) ([]lockcore.Lease, error)
	TryEnter(ctx context.Context, req party.Request) ([]lockcore.Lease, error)
	NewSession(ctx context.Context, leases []lockcore.Lease) session
	Renew(ctx context.Context, leases ...lockcore.Lease) ([]lockcore.Lease, error)
	Leave(ctx context.Context, leases ...lockcore.Lease) error
	LeaveQueue(ctx context.Context, leases ...lockcore.Lease) error
	Release(ctx context.Context, r party.Release) error
	ReleaseHeld(ctx context.Context, r party.Release) (held []string, err error)
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
}

// session is what it needs of a *party.Session.
type session interface {
	Context() context.Context
	Lost() error
	Leases() []lockcore.Lease
	Leave(ctx context.Context) error
	LeaveWithin(ctx context.Context, d time.Duration) error
	Release(ctx context.Context) error
}

type coreLocker struct{ *party.Locker }

func (l coreLocker) NewSession(ctx context.Context, leases []lockcore.Lease) session {
	return l.Locker.NewSession(ctx, leases)
}
