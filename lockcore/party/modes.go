package party

import (
	"context"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Downgrade makes the session's exclusive leases shared, so that readers may come in beside it. A
// lock ID that has other running parts on a resource stays exclusive there: the lease's Mode says
// so. It takes one command per resource. The fences stay. Errors are those of Renew; what was
// downgraded before one stays so. From before the command is sent the session trusts only shared:
// after an error Mode says so, and Downgrade may be repeated.
func (s *Session) Downgrade(ctx context.Context) error {
	for _, lease := range s.Leases() {
		if lease.Mode != ModeExclusive && !lease.downgrading {
			continue
		}
		s.trustShared(lease.Resource)
		down, err := s.locker.renewOne(ctx, lease, true)
		if err != nil {
			return err
		}
		if err := s.replace(down); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) trustShared(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leaseOn(resource)
	lease.Mode, lease.downgrading = ModeShared, true
}

// Upgrade makes the session's shared lease on a resource exclusive, with a new fence. It goes ahead
// of the queue and waits until the other holders have left, or ctx ends: then, as after any other
// error, the session holds in shared mode as before. If two sessions wait to upgrade on a resource,
// one of them gets ErrDeadlock. A session upgrades one resource at a time.
func (s *Session) Upgrade(ctx context.Context, resource string) error {
	ctx, done, err := s.locker.life.call(ctx)
	if err != nil {
		return err
	}
	defer done()
	lease, err := s.beginUpgrade(resource)
	if err != nil {
		return err
	}
	defer s.endUpgrade()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// It is the session's own part, which asks for more: its shared entry is kept until it gets that.
	req, err := s.locker.complete(Request{
		LockID: lease.LockID, Run: lease.Run, Resources: []Resource{{Name: resource, Mode: ModeExclusive, Held: true}}, Part: lease.Part, Order: lease.Order,
		TTL: lease.askedTTL(), Owner: lease.owner, Host: lease.host, Comment: lease.comment,
	}, false)
	if err != nil {
		return err
	}
	op := s.locker.acquireOp(&req, req.Resources[0])
	op.Upgrades = lease.id
	up, err := s.locker.acquireOne(ctx, ctx, &req, op, s)
	if err != nil {
		s.locker.giveUpUpgrade(ctx, &op)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if err := s.replace(up); err != nil {
		s.locker.giveUp(ctx, up)
		return err
	}
	return nil
}

func (s *Session) beginUpgrade(resource string) (Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leaseOn(resource)
	err := firstError(refuse(lease == nil, "resource", quote(resource), "one that the session holds"),
		refuse(s.upgrading != "", "resource", quote(resource), "one upgrade of a session at a time"))
	if err != nil {
		return Lease{}, err
	}
	s.upgrading = resource
	return lease.Lease, nil
}

func (s *Session) endUpgrade() {
	s.mu.Lock()
	s.upgrading = ""
	s.mu.Unlock()
	s.locker.keeper.poke()
}

// giveUpUpgrade ends a request for an upgrade: the session holds in shared mode, under the ID that it
// had. If that cannot be done now, it is done with the next write.
func (l *Locker) giveUpUpgrade(ctx context.Context, op *rules.Acquire) {
	ctx, cancel := l.detached(ctx)
	defer cancel()
	c := l.takeBack(ctx, op)
	c.TakeBack, c.Owed = l.takeBack(ctx, op), true
	_, _ = l.do(ctx, "leave", orderOf(op.Order), c) // the cause is what the caller must see
}
