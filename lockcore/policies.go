package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Policy is a limit that an operator sets for a semaphore, or for all semaphores whose names begin alike, while
// they are in use; or a pool. A limit replaces that of [SharedLimit] requests, for waiters and for new requests.
// Exclusive and [Shared] requests are not affected. No lock is lost by a policy: under a lower limit, waiters wait until
// enough holders have ended, and a member that is taken out of a pool remains locked until its holder ends.
type Policy struct {
	// Name is the name of a resource; with Prefix, the beginning of names, 1 to 512 bytes, or nothing for all resources.
	// The exact name wins over prefixes, and a longer prefix over a shorter one.
	Name   string `json:"name"`
	Prefix bool   `json:"prefix,omitempty"`
	// Limit is the number of holders: 1 to 1,000,000, and 0 for a pool.
	Limit int `json:"limit,omitempty"`
	// Members makes Name a pool: the things of which each [Pool] request gets one, in turn. Each has 1 to 512 bytes. A member is
	// in one pool only. A pool has no Prefix, Limit and Until.
	Members []string `json:"members,omitempty"`
	// Out has the members that are out of service, each with the reason, up to 1,024 bytes. They are granted only to
	// a lock ID that has lost the member and needs it again.
	Out map[string]string `json:"out,omitempty"`
	// Until is the time at which the policy ends, in the future by the clock of the database. Defaults to zero: it has no end.
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
// Errors: *InvalidError, also if there is no room for the policy or it would have ended already; *LayoutError, ErrClosed; or
// that of the database, after which the outcome may be unknown.
func (l *Locker) SetPolicy(ctx context.Context, p Policy) error {
	if err := cmp.Or(p.check(), p.checkContent()); err != nil {
		return err
	}
	return l.changePolicy(ctx, rules.PolicyChange{PolicyID: p.id(), To: p.stored(), By: p.By, Reason: p.Reason})
}

// EditPolicy changes the policy for a name or a prefix, depending on what it is now, and stores it like SetPolicy: for
// instance, it adds a member to a pool. edit changes a copy of the present policy, which has no limit and no members if there is
// none; a policy that edit leaves without both is removed. edit may be called several times: if another process changes a policy
// in between, on what that one has left. An error of edit is returned, and nothing is changed. Other errors are those of RemovePolicy.
func (l *Locker) EditPolicy(ctx context.Context, of Policy, edit func(*Policy) error) error {
	if err := of.check(); err != nil {
		return err
	}
	change := rules.PolicyChange{PolicyID: of.id(), By: of.By, Reason: of.Reason}
	change.Edit = func(present *rules.Policy) (*rules.Policy, error) {
		p := Policy{Name: of.Name, Prefix: of.Prefix}
		if present != nil {
			p = *policyOf(present)
		}
		err := edit(&p)
		if err != nil || (p.Limit == 0 && len(p.Members) == 0) {
			return nil, err
		}
		return p.stored(), p.checkContent()
	}
	return l.changePolicy(ctx, change)
}

// EnablePriorities lets [Request].Priority and [Locker.Promote] take effect, as the first policy does, too: from then on versions of
// Lockstep without policies and priorities are refused. by and reason are as in Policy. Its errors are those of SetPolicy.
func (l *Locker) EnablePriorities(ctx context.Context, by, reason string) error {
	p := Policy{Prefix: true, By: by, Reason: reason}
	if err := p.check(); err != nil {
		return err
	}
	return l.changePolicy(ctx, rules.PolicyChange{By: by, Reason: reason})
}

// Promote puts the waiters of a lock ID on a resource first in the queue, behind upgrades and others that go ahead, and
// behind waiters that were promoted before. It reports false if the lock ID does not wait there. Other errors than that of
// a collection without policies, an *InvalidError, are the database's, and ErrClosed.
func (l *Locker) Promote(ctx context.Context, resource, lockID string) (bool, error) {
	if err := checkEnd("Promote", lockID, 0, []string{resource}); err != nil {
		return false, err
	}
	identity, err := l.identify(ctx)
	if err == nil {
		err = refuse(identity.Policies == nil, "resource", quote(resource), "one of a collection in which priorities are in force: call Locker.EnablePriorities, or lockstep policies --enable")
	}
	if err != nil {
		return false, err
	}
	a, err := l.do(ctx, "promote", Order{}, l.call(ctx, rules.Promote{Resource: resource, LockID: lockID}, ending{}))
	return err == nil && a.Outcome == rules.Granted, err
}

// RemovePolicy removes the policy of a name or a prefix, so that the limits of requests are in force again. By and Reason are
// for people. Its errors are those of SetPolicy, or ErrNoPolicy.
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

// checkContent checks what a policy sets.
func (p *Policy) checkContent() error {
	if len(p.Members) == 0 {
		return cmp.Or(refuse(len(p.Out) > 0, "Policy.Out", "set", "empty without Policy.Members"),
			refuse(p.Limit < 1 || p.Limit > maxLimit, "Policy.Limit", strconv.Itoa(p.Limit), "1 to 1,000,000"))
	}
	errs := []error{
		checkNames("Policy.Members", p.Members, ""),
		refuse(p.Prefix, "Policy.Prefix", "true", "false for a pool: it has an exact name"),
		refuse(p.Limit != 0, "Policy.Limit", strconv.Itoa(p.Limit), "0 for a pool"),
		refuse(!p.Until.IsZero(), "Policy.Until", p.Until.String(), "zero for a pool: it has no end"),
	}
	for i, m := range p.Members {
		errs = append(errs, refuse(slices.Contains(p.Members[:i], m), fmt.Sprintf("Policy.Members[%d]", i), quote(m), "each member once"))
	}
	for m, reason := range p.Out {
		errs = append(errs, refuse(!slices.Contains(p.Members, m), "Policy.Out", quote(m), "one of Policy.Members"), checkText("Policy.Out["+quote(m)+"]", reason, 0, maxComment))
	}
	return cmp.Or(errs...)
}

// stored returns what the policy sets, as it is stored.
func (p *Policy) stored() *rules.Policy {
	to := &rules.Policy{Limit: int64(p.Limit)}
	for _, m := range p.Members {
		reason, out := p.Out[m]
		to.Members = append(to.Members, rules.Member{Name: m, Out: out, Reason: reason})
	}
	if !p.Until.IsZero() {
		to.Until = &p.Until
	}
	return to
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
	for _, m := range p.Members {
		if out.Members = append(out.Members, m.Name); m.Out {
			if out.Out == nil {
				out.Out = map[string]string{}
			}
			out.Out[m.Name] = m.Reason
		}
	}
	if p.Until != nil {
		out.Until = *p.Until
	}
	return out
}

// inForce describes the limit that a policy sets for a request, and that for which the request asked.
func (p *Policy) inForce(asked int) string {
	name := rules.Printable(p.Name)
	if p.Prefix {
		name += "*"
	}
	if p.Unreadable {
		return fmt.Sprintf("the policy %s, which sets its limit, cannot be decoded", name)
	}
	text := fmt.Sprintf("limit %d by policy %s", p.Limit, name)
	if !p.Until.IsZero() {
		text += ", until " + p.Until.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	if p.Limit != asked {
		text += fmt.Sprintf("; the request asked for %d", asked)
	}
	return text
}

// unreadablePolicy returns the error about a request that a policy decides about which cannot be decoded.
func unreadablePolicy(d *rules.Document) error {
	return &DamagedError{Resource: d.ID, Err: fmt.Errorf("the policy for %s, which limits its holders, is damaged: set it again, or remove it", d.Policy.PolicyID)}
}
