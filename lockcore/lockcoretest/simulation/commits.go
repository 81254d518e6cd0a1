package simulation

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// use is that a step of a workflow has run under a lock. From then on the workflow relies on the hold, until it commits.
type use struct {
	resource string
	mode     lockcore.Mode
	by       lockcore.Order
	since    time.Time
	// first names the hold.
	first int64
}

// used takes down that a step has run.
func (r *run) used(step *lockcore.Request) {
	for _, res := range step.Resources {
		d := r.w.db.Document(res.Name)
		r.uses = append(r.uses, use{res.Name, res.Mode, lockcore.LastAttempt(step.Order.Schedule), time.Now(), d.HoldFence(r.lockID)})
	}
}

// commit verifies what the steps have used, and releases it. What is lost is left to ends, as what a run leaves is to the
// janitor.
func (r *run) commit() {
	c := lockcore.Commit{LockID: r.lockID, Run: r.label, Order: lockcore.LastAttempt(r.schedule), Inherits: len(r.before) > 0, Before: r.before}
	for _, u := range r.uses { // the first of each resource: a hold that began after it is another one
		if !slices.ContainsFunc(c.Uses, func(known lockcore.Use) bool { return known.Resource == u.resource }) {
			c.Uses = append(c.Uses, lockcore.Use{Resource: u.resource, By: u.by})
			c.Resources = append(c.Resources, u.resource)
		}
	}
	tried := &tries{run: r} // one that was not waited for goes on
	for !r.w.over() {
		p := r.anyProcess()
		ctx, call := r.begin(r.ctx, p, "commit of "+r.label, false)
		tried.add(call)
		asked, sure := c, tried.certain(&c)
		err := r.within(10*time.Second, func() error {
			err := p.locker.Commit(ctx, asked)
			tried.told(call, sure, err)
			return err
		})
		var other *lockcore.OtherRunError
		switch {
		case errors.As(err, &other) && len(r.before) > 0:
			c.TakeOver = other.Other
		case err == nil, errors.Is(err, lockcore.ErrLost), errors.Is(err, lockcore.ErrOtherRun):
			return
		default:
			time.Sleep(time.Second)
		}
	}
}

// tries are the calls of one commit.
type tries struct {
	*run
	calls []*call
}

func (t *tries) add(c *call) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.calls = append(t.calls, c)
}

// firstOn is when one of them first took effect on a resource. The mutex is held.
func (t *tries) firstOn(resource string) (at time.Time) {
	for _, c := range t.calls {
		if first, ok := c.first[resource]; ok && (at.IsZero() || first.Before(at)) {
			at = first
		}
	}
	return at
}

// certain are the resources that must not be told to be lost: those on which all uses were of the hold that stands, and for a
// while; or all, if the commit has begun to release.
func (t *tries) certain(c *lockcore.Commit) (sure []string) {
	begun := false
	for _, name := range c.Resources {
		d := t.w.db.Document(name)
		begun = begun || d.HasCommitted(c.LockID, c.Run, number(c.Order))
		k := d.Kept(c.LockID)
		another := func(u use) bool { return u.resource == name && u.first != k.FirstFence }
		if k != nil && (k.Label == c.Run || k.Label == c.TakeOver) && k.ExpiresAt.After(time.Now().Add(15*time.Second)) && !slices.ContainsFunc(t.uses, another) {
			sure = append(sure, name)
		}
	}
	if begun {
		sure = c.Resources
	}
	return sure
}

// admission is that a request was granted a resource, in the name of whom.
type admission struct {
	resource, lockID string
	mode             lockcore.Mode
	at               time.Time
}

// admits takes down what a write lets in.
func (w *world) admits(before, after *rules.Document) {
	for i := range after.Entries {
		e := &after.Entries[i]
		if e.State == rules.StateRunning && before.Part(e.LockID, e.Part, e.Order) == nil {
			w.admissions = append(w.admissions, admission{after.ID, e.LockID, lockcore.Mode(e.Mode), time.Now()})
		}
	}
}

// told checks what a workflow was told at its commit: that is what isolation is. If all is well, then nobody else was let in
// after a step had run, and before the commit first took effect. And nothing is lost that stands.
func (t *tries) told(c *call, sure []string, err error) {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	c.done = true
	w.noted(t.name, t.lockID, "%s: %v", c.what, err)
	var lost *lockcore.LostError
	if errors.As(err, &lost) && slices.Contains(sure, lost.Resource) && time.Since(c.began) < 12*time.Second {
		w.broken("false loss", t.lockID, "%s: nobody else had %s, and it is told to be lost: %v", c.what, lost.Resource, err)
	}
	if err != nil {
		return
	}
	for _, u := range t.uses {
		until := t.firstOn(u.resource)
		for _, a := range w.admissions {
			own := a.lockID == t.lockID || strings.HasPrefix(a.lockID, t.lockID+"/")
			if a.resource == u.resource && !own && !rules.Compatible(string(a.mode), string(u.mode)) && a.at.After(u.since) && a.at.Before(until) {
				w.broken("isolation", t.lockID, "%s: %s was used %v ago, and %s was let in %v ago", c.what, u.resource,
					time.Since(u.since).Round(time.Millisecond), a.lockID, time.Since(a.at).Round(time.Millisecond))
			}
		}
	}
}
