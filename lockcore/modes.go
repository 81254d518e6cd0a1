package lockcore

import "context"

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
	lease, order, err := s.beginUpgrade(resource)
	if err != nil {
		return err
	}
	defer s.endUpgrade()
	// It is the session's own part, which asks for more: its shared entry stands until it gets that.
	req, err := s.locker.complete(Request{
		LockID: lease.LockID, Resources: []Resource{{Name: resource, Mode: ModeExclusive, Held: true}}, Part: lease.Part, Order: order,
		TTL: lease.askedTTL(), Owner: lease.owner, converts: lease.Order,
	}, false)
	if err != nil {
		return err
	}
	up, err := s.locker.acquireOne(ctx, ctx, &req, req.Resources[0], s)
	if err != nil {
		s.takeBackUpgrade(ctx, lease, order)
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

func (s *Session) beginUpgrade(resource string) (Lease, Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.leaseOn(resource)
	err := firstError(refuse(lease == nil, "resource", quote(resource), "one that the session holds"),
		refuse(s.upgrading != "", "resource", quote(resource), "one upgrade of a session at a time"))
	if err != nil {
		return Lease{}, Order{}, err
	}
	s.upgrading = resource
	s.orders++
	return lease.Lease, orderOf(s.orders), nil
}

func (s *Session) endUpgrade() {
	s.mu.Lock()
	s.upgrading = ""
	s.mu.Unlock()
	s.locker.keeper.poke()
}

// takeBackUpgrade ends the request for an upgrade: its place or its claim goes. If it was granted,
// and the answer lost, the session goes on with what it got, in shared mode.
func (s *Session) takeBackUpgrade(ctx context.Context, lease Lease, order Order) {
	ctx, cancel := s.locker.detached(ctx)
	defer cancel()
	lease.Order = order
	if down, err := s.locker.renewOne(ctx, lease, true); err == nil {
		_ = s.replace(down) // or it has ended, or lost its lock
		return
	}
	op := s.locker.leaveOp(lease, false)
	op.Waiting = true
	// An error leaves the place to its TTL; the cause is what the caller must see.
	_ = s.locker.leave(ctx, op, lease, ending{})
}
