package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Policy is a limit that an operator sets for a semaphore, or for all semaphores whose names begin alike, while
// they are in use. It replaces the limit of [SharedLimit] requests, for those that wait and for new ones. No lock
// is lost by it: under a lower limit, waiters wait until enough holders have ended. Exclusive and [Shared]
// requests are not affected.
type Policy struct {
	// Name is the name of a resource; with Prefix, the beginning of names, 1 to 512 bytes, or nothing for all resources.
	// The exact name wins over prefixes, and a longer prefix over a shorter one.
	Name   string `json:"name"`
	Prefix bool   `json:"prefix,omitempty"`
	// Limit is the number of holders: 1 to 1,000,000.
	Limit int `json:"limit"`
	// Until is the time at which the policy ends, by the clock of the database. Defaults to zero: it has no end.
	Until time.Time `json:"until,omitzero"`
	// By and Reason say who set it, and why, for people: up to 255 and 1,024 bytes.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// At is the time at which it was set. SetPolicy ignores it.
	At time.Time `json:"at,omitzero"`
	// Unreadable is set if the stored policy cannot be decoded, because it was damaged, or a later version wrote it. Then
	// new requests with a limit are refused with a *[DamagedError]. SetPolicy ignores it.
	Unreadable bool `json:"unreadable,omitempty"`
}

// SetPolicy stores a policy. Every Locker of the collection follows it within ten seconds. There may be 1,000 policies,
// with 256 kB of names and reasons. From the first one on, versions of Lockstep without policies are refused.
//
// Errors: *InvalidError, *LayoutError, ErrClosed; one without a type if there is no room for the policy, and nothing was
// changed; or that of the database, after which the outcome may be unknown.
func (l *Locker) SetPolicy(ctx context.Context, p Policy) error {
	if err := cmp.Or(p.check(), refuse(p.Limit < 1 || p.Limit > maxLimit, "Policy.Limit", strconv.Itoa(p.Limit), "1 to 1,000,000")); err != nil {
		return err
	}
	to := rules.Policy{Limit: int64(p.Limit)}
	if !p.Until.IsZero() {
		to.Until = &p.Until
	}
	return l.changePolicy(ctx, rules.PolicyChange{PolicyID: p.id(), To: &to, By: p.By, Reason: p.Reason})
}

// RemovePolicy removes the policy of a name or a prefix, so that the limits of requests are in force again. By and Reason are
// for people. Its errors are those of SetPolicy. One without a type says that there is no such policy.
func (l *Locker) RemovePolicy(ctx context.Context, p Policy) error {
	if err := p.check(); err != nil {
		return err
	}
	return l.changePolicy(ctx, rules.PolicyChange{PolicyID: p.id(), By: p.By, Reason: p.Reason})
}

func (p *Policy) id() rules.PolicyID { return rules.PolicyID{Name: p.Name, Prefix: p.Prefix} }

// check checks what a policy is for, and who sets it.
func (p *Policy) check() error {
	atLeast := 1
	if p.Prefix {
		atLeast = 0
	}
	return cmp.Or(
		checkText("Policy.Name", p.Name, atLeast, maxName), checkText("Policy.By", p.By, 0, 255), checkText("Policy.Reason", p.Reason, 0, maxComment),
	)
}

func (l *Locker) changePolicy(ctx context.Context, change rules.PolicyChange) error {
	if l.life.closed.Err() != nil {
		return ErrClosed
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	if err := l.store.SetPolicy(ctx, change); err != nil {
		return public(err)
	}
	_, err := l.identify(ctx) // so that this Locker follows it at once
	return err
}

// Policies returns the policies of the collection. It asks the database, and returns its errors, or ErrClosed.
func (l *Locker) Policies(ctx context.Context) ([]Policy, error) {
	identity, err := l.identify(ctx)
	if err != nil || identity.Policies == nil {
		return nil, err
	}
	policies := make([]Policy, 0, len(identity.Policies.List))
	for i := range identity.Policies.List {
		policies = append(policies, *policyOf(&identity.Policies.List[i]))
	}
	return policies, nil
}

// policyOf returns a policy as callers see it, or nil if there is none.
func policyOf(p *rules.Policy) *Policy {
	if p == nil {
		return nil
	}
	out := &Policy{Name: p.Name, Prefix: p.Prefix, Limit: int(p.Limit), By: p.By, Reason: p.Reason, At: p.At, Unreadable: p.Unreadable}
	if p.Until != nil {
		out.Until = *p.Until
	}
	return out
}

// unreadablePolicy returns the error about a request that a policy decides about which cannot be decoded.
func unreadablePolicy(d *rules.Document) error {
	return &DamagedError{Resource: d.ID, Err: fmt.Errorf("the policy for %s, which limits its holders, is damaged: set it again, or remove it", d.Policy.PolicyID)}
}
