package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Policy is a policy after a change. Limit is 0 if it was removed. Until is the time, as in Record.At, at which it ends, or 0.
type Policy struct {
	Name   string
	Prefix bool
	Limit  int
	Until  int64
}

// applies reports whether a policy is for a resource.
func (p *Policy) applies(resource string) bool {
	return p.Name == resource || p.Prefix && strings.HasPrefix(resource, p.Name)
}

// precedes reports whether a policy wins over another one for a resource of both.
func (p *Policy) precedes(other *Policy) bool {
	if p.Prefix != other.Prefix {
		return !p.Prefix
	}
	return len(p.Name) > len(other.Name)
}

// adopted is the time in which all processes follow a change.
const adopted = 10 * time.Second

// asLogged lets the operator set what it logs.
func asLogged(p lockcore.Policy) lockcore.Policy { return p }

// limited lets it set another limit.
func limited(to int) func(lockcore.Policy) lockcore.Policy {
	return func(p lockcore.Policy) lockcore.Policy {
		p.Limit = to
		return p
	}
}

// anonymous lets it give no reason.
func anonymous(p lockcore.Policy) lockcore.Policy {
	p.Reason = ""
	return p
}

// drawPolicy draws a change. Low limits are more likely, because they forbid more.
func drawPolicy(r *rand.Rand) Policy {
	p := Policy{Name: fmt.Sprintf("z/%d", r.IntN(semaphores)), Limit: []int{1, 1, 2, 2 * permits}[r.IntN(4)]}
	switch r.IntN(8) {
	case 0:
		p.Name, p.Prefix = "", true
	case 1, 2, 3:
		p.Name, p.Prefix = "z/", true
	}
	switch r.IntN(6) {
	case 0:
		p.Limit = 0
	case 1:
		p.Until = int64(span(r, 2000, 15000))
	}
	return p
}

// operate changes the policies of the semaphores until ctx ends. Half of the changes last until all processes follow them.
func (p *play) operate(ctx context.Context) {
	r := rand.New(rand.NewPCG(p.Seed, 200)) //nolint:gosec // it should be the same each time
	pause := span(r, 1, 1000)
	have := map[Policy]bool{} // without limits
	for number := 0; harness.Pause(ctx, pause); number++ {
		to := drawPolicy(r)
		id := Policy{Name: to.Name, Prefix: to.Prefix}
		for to.Limit == 0 && !have[id] { // nothing to remove
			to.Limit = drawPolicy(r).Limit
		}
		have[id] = to.Limit > 0
		p.changePolicy(to, fmt.Sprintf("change %d", number))
		if pause = span(r, 500, 3000); number%2 == 1 {
			pause += adopted + span(r, 4000, 10000)
		}
	}
}

// changePolicy makes a change and logs it. Its key is the reason, by which the audit shows it.
func (p *play) changePolicy(to Policy, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	began := now()
	policy := lockcore.Policy{Name: to.Name, Prefix: to.Prefix, Limit: to.Limit, By: "chaos", Reason: key}
	if to.Until > 0 {
		policy.Until = time.Now().Add(time.Duration(to.Until))
		to.Until += began
	}
	change := p.locker.SetPolicy
	if to.Limit == 0 {
		change = p.locker.RemovePolicy
	}
	err := change(ctx, p.Policies(policy))
	result := done
	if err != nil {
		result = unknown
	}
	p.log.Write(&Record{What: Change, Began: began, Key: key, Policy: &to, Result: result, Error: text(err)})
}

// audit logs the changes that the audit of policies shows, each once.
func (p *play) audit(ctx context.Context) error {
	var identity struct {
		Changes []rules.PolicyChange `bson:"policyChanges"`
	}
	if err := p.coll.FindOne(ctx, bson.D{{Key: "_id", Value: store.IdentityID}}).Decode(&identity); err != nil {
		return err
	}
	for i := range identity.Changes {
		c := &identity.Changes[i]
		if p.audited[c.Reason] {
			continue
		}
		p.audited[c.Reason] = true
		to := Policy{Name: c.Name, Prefix: c.Prefix}
		if c.To != nil {
			to.Limit = int(c.To.Limit)
			if c.To.Until != nil {
				to.Until = now() + int64(time.Until(*c.To.Until))
			}
		}
		p.log.Write(&Record{What: Audited, Key: c.Reason, Policy: &to})
	}
	return nil
}
