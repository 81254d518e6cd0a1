package main

import (
	"context"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// naive is a hold of a client that is wrong on purpose: it decides by a clock of its own until when it trusts its lease, and
// when to renew it.
//
// With brokenWall this is the wall clock. If it is set back, the client trusts a lease that has long ended. With brokenLate the
// time counts from the answer of the database instead of from the request. If the answer takes long, so does a part of the TTL.
//
// The connections of the first half of the clients are slow in the control of brokenLate. These hold for as long as they trust
// their leases. Each has one opponent, which asks all the time while such a lease lasts. After a hold of its own the opponent is
// silent, because a slow swap fails if another client changes the document.
func (c *client) naive(ctx context.Context, req lockcore.Request) {
	ask := lockcore.StepRequest{Caller: lockcore.Caller{LockID: req.LockID}, Resources: req.Resources}
	long, opponent := 2*ttl, c.Broken == brokenLate && c.Slot >= clients/2
	if c.Broken == brokenLate {
		ask.Resources = []lockcore.Resource{lockcore.Exclusive(fmt.Sprintf("late/%d", c.Slot%(clients/2)))}
	}
	if opponent {
		long = ttl / 30
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	began := now()
	leases, err := c.locker.Steps().TryEnter(call, ask)
	if err != nil {
		c.log.Write(&Record{What: Not, Began: began, LockID: ask.LockID, Result: resultOf(err), Error: err.Error()})
		return
	}
	for _, l := range leases {
		c.log.Write(&Record{What: Got, Began: began, Resource: l.Resource, LockID: ask.LockID, Shared: l.Mode == lockcore.ModeShared, Fence: l.Fence})
	}
	clock := time.Now
	if c.Broken == brokenWall {
		clock = func() time.Time { return time.Now().Round(0) }
	}
	trusted := ttl - ttl/10
	until := clock().Add(trusted)
	look := time.NewTicker(logEvery)
	defer look.Stop()
	for end := now() + int64(long); now() < end && ctx.Err() == nil; <-look.C {
		at := now()
		if clock().Before(until) {
			for _, l := range leases {
				c.log.Write(&Record{At: at, What: Trusted, Resource: l.Resource, LockID: ask.LockID})
			}
		}
		if c.Broken == brokenWall && until.Sub(clock()) < ttl/3 {
			if leases, err = c.locker.Steps().Renew(call, leases...); err != nil {
				return
			}
			until = clock().Add(trusted)
		}
	}
	_ = c.locker.Leave(call, leases...) // it ends with its TTL otherwise
	if opponent {
		harness.Pause(ctx, 2*ttl)
	}
}
