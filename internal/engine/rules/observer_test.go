package rules_test

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// step is one operation that was applied to a document.
type step struct {
	op            rules.Op
	before, after *rules.Document
	rules.Result
	settings rules.Settings
	// limit is that of the policy in force, or 0, and pool its members.
	limit int64
	pool  []rules.Member
}

// limitOf returns the limit of a request under the policy in force.
func (s *step) limitOf(own int64) int64 {
	if own > 0 && s.limit > 0 {
		return s.limit
	}
	return own
}

// observer watches one resource, remembers the answers that its parties received, and reports a step
// that breaks an invariant. It does not use the code that it checks. The invariants are:
//
//	I1  while a part trusts an exclusive lease, no other party's part trusts one
//	I2  a write grants a request with a limit only if fewer others than that are alive
//	I3  fences strictly increase over grants
//	I4  no waiter is overtaken by a later request that is in its way, upgrades and requests of a lower rank excepted, and no
//	    claim is pushed back
//	I5  an operation touches only what it names
//	I6  an operation that is repeated ends as if it had run once; late requests are refused
//	I8  a part that was reported lost, and has not left, is not reported held again
//	I9  expired entries and waiters delay no request
//	I12 the victim of a deadlock gets that outcome, and no other request does
//	I13 no two parties have the same member of a pool, except a step within its workflow; and a grant has a member that is in
//	    service, or the one that it must get
//	I14 a request that gave up left the document as settling alone would have left it: see givesUp
//	I15 every entry of a hold ends before the document may be removed as idle
//	missed: the release after a commit records each loss of which it erases the evidence, and nothing else does
type observer struct {
	// latest is the latest time of a step: the server's clock may run backwards.
	latest time.Time
	// trusts contains the leases that running and draining parts may trust.
	trusts map[part]lease
	// granted and lost contain the last fence of each part that was reported granted or lost.
	granted, lost map[part]int64
	fence         int64
	// released contains the order up to which a run has released everything.
	released map[run]int64
	// barred lists the sagas that compensations have barred.
	barred []rules.Bar
	// losses contains the evidence of lost holds that was not erased, and regained, by run and call, the
	// number of the newest evidence that a request was allowed to outlive. replaced contains the runs that
	// were taken over.
	losses   []rules.Evidence
	regained map[run]map[string]int64
	replaced map[run]bool
	// within maps lock IDs to their enclosing lock IDs.
	within map[string]string
}

// part is a request that was granted. Own is set once it was cut off from its own party.
type part struct {
	lockID, part string
	order        int64
	own          bool
}

type run struct{ lockID, run string }

type lease struct {
	until, heard time.Time
	mode, member string
}

func newObserver() *observer {
	return &observer{
		trusts: map[part]lease{}, granted: map[part]int64{}, lost: map[part]int64{}, released: map[run]int64{},
		regained: map[run]map[string]int64{}, replaced: map[run]bool{}, within: map[string]string{},
	}
}

// check returns an error that names the invariant that the step broke.
func (o *observer) check(s *step) error {
	o.latest = rules.Later(o.latest, s.now())
	if op, ok := s.op.(rules.Acquire); ok && op.Within != "" {
		o.within[op.LockID] = op.Within
	}
	if err := o.currentRun(s); err != nil {
		return fmt.Errorf("I5: %s after %+v: %w", s.Outcome, s.op, err)
	}
	for _, e := range s.evidence() {
		if e.To != "" {
			o.replaced[run{e.LockID, e.Run}] = true
		}
	}
	checks := []struct {
		name  string
		check func(*step) error
	}{
		{"I6", o.refused}, {"I8", o.neverHeldAgain}, {"I8", lostForAReason}, {"I3", o.fences}, {"I6", readOnly},
		{"I1", lasting}, {"I2", o.limits}, {"I4", o.firstCome}, {"I4", o.claimStays}, {"I5", named}, {"I9", o.noDelay}, {"I12", victims}, {"I15", idle}, {"missed", missed}, {"I13", o.members},
	}
	for _, c := range checks {
		if err := c.check(s); err != nil {
			return fmt.Errorf("%s: %s after %+v: %w", c.name, s.Outcome, s.op, err)
		}
	}
	o.hear(s)
	if err := o.alone(s); err != nil {
		return fmt.Errorf("I1: %s after %+v: %w", s.Outcome, s.op, err)
	}
	o.remember(s)
	return nil
}

// evidence returns what the operation added to the evidence.
func (s *step) evidence() []rules.Evidence {
	return slices.DeleteFunc(slices.Clone(s.after.Evidence), func(e rules.Evidence) bool { return slices.Contains(s.before.Evidence, e) })
}

func (s *step) now() time.Time { return s.after.At }

func (s *step) lockID() string { return reflect.ValueOf(s.op).FieldByName("LockID").String() }

func partOf(e *rules.Entry) part { return part{e.LockID, e.Part, e.Order, e.CutOff} }

// running returns the part that the answer reports as held, or nil.
func (s *step) running() *rules.Entry {
	switch op := s.op.(type) {
	case rules.Acquire:
		if slices.Contains([]rules.Outcome{rules.Granted, rules.Joined, rules.Again}, s.Outcome) && !op.HoldOnly {
			return s.after.Part(op.Caller)
		}
	case rules.Renew:
		if s.Outcome == rules.Granted {
			return s.after.Part(op.Caller)
		}
	}
	return nil
}

// hear updates the leases that parts trust.
func (o *observer) hear(s *step) {
	count := func(d *rules.Document, p part) (n int) {
		for i := 0; d != nil && i < len(d.Entries); i++ {
			if e := &d.Entries[i]; partOf(e) == p && e.State != rules.StateClaimed {
				n++
			}
		}
		return n
	}
	for p, l := range o.trusts {
		// Of a pool, the same part of an earlier run may have been cut off before.
		if cutOff := (part{p.lockID, p.part, p.order, true}); !p.own && count(s.after, p) == 0 && count(s.after, cutOff) > count(s.before, cutOff) {
			delete(o.trusts, p)
			o.trusts[cutOff] = l
		}
	}
	if e := s.running(); e != nil {
		o.trusts[partOf(e)] = lease{until: e.ExpiresAt, heard: s.now(), mode: e.Mode, member: e.Member}
	}
	switch op := s.op.(type) {
	case rules.Leave:
		if !op.QueueOnly {
			delete(o.trusts, part{op.LockID, op.Part, op.Order, false})
			if op.Run != "" {
				delete(o.trusts, part{op.LockID, op.Part, op.Order, true})
			}
		}
	case rules.TakeBack:
		for _, e := range s.before.Entries {
			if e.LockID == op.LockID && callID(&e) == op.Call && e.State != rules.StateKept && (e.CutOff || s.after.Part(e.Caller) == nil) {
				delete(o.trusts, partOf(&e))
			}
		}
		o.weaken(s)
	case rules.Renew: // the part itself weakens its mode
		o.weaken(s)
	case rules.Release:
		for _, e := range s.before.Entries {
			if op.Now && ends(s, &op, &e) || (op.Leaving != nil && e.Part == *op.Leaving && e.Order == op.Order && ends(s, &op, &e)) {
				delete(o.trusts, partOf(&e)) // the caller knows that it has stopped
			}
		}
	}
	for p, l := range o.trusts {
		if !l.until.Before(rules.Never) && s.after.Part(rules.Caller{LockID: p.lockID, Part: p.part, Order: p.order}) == nil { // cut off, it trusts a lease of EndlessTTL less the margin
			l.until = l.heard.Add(rules.EndlessTTL - rules.EndlessTTL/10)
			o.trusts[p] = l
		}
		if !l.until.After(s.now()) {
			delete(o.trusts, p)
		}
	}
}

// weaken takes the modes of the parts of a lock ID from their entries.
func (o *observer) weaken(s *step) {
	for p, l := range o.trusts {
		if e := s.after.Part(rules.Caller{LockID: p.lockID, Part: p.part, Order: p.order}); p.lockID == s.lockID() && !p.own && e != nil {
			l.mode = e.Mode
			back, ok := s.op.(rules.TakeBack)
			upgraded := ok && slices.ContainsFunc(s.before.Entries, func(b rules.Entry) bool { return b.ID == back.Call && partOf(&b) == p })
			if upgraded && e.ExpiresAt.Before(l.until) {
				l.until = e.ExpiresAt // the part trusts what it held before its upgrade
			}
			o.trusts[p] = l
		}
	}
}

// ends reports whether a release names an entry.
func ends(s *step, op *rules.Release, e *rules.Entry) bool {
	switch {
	case op.Force:
		return e.LockID == op.LockID && e.FirstFence == op.FirstFence
	case !e.BelongsTo(op.LockID) || (op.Run != "" && e.Run != op.Run):
		return false
	case op.FirstFence > 0:
		return e.FirstFence == op.FirstFence
	}
	return e.Order <= op.Order
}

func (o *observer) remember(s *step) {
	o.fence = s.after.Fence
	for i := range s.after.Entries {
		e := &s.after.Entries[i]
		o.fence = max(o.fence, e.Fence)
	}
	if e := s.running(); e != nil {
		o.granted[partOf(e)] = e.Fence
	}
	for _, h := range s.Holds {
		op, _ := s.op.(rules.Acquire) // which may have queued just now
		if (op.Call == h.ID && op.Reacquire) || slices.ContainsFunc(s.before.Waiters, func(w rules.Waiter) bool { return w.Hold != nil && w.Hold.ID == h.ID && w.Hold.Reacquire }) {
			o.regain(run{h.LockID, h.Run}, h.ID, time.Time{})
		}
	}
	o.losses = append(o.losses, slices.DeleteFunc(s.evidence(), func(e rules.Evidence) bool { return e.To != "" })...)
	switch op := s.op.(type) {
	case rules.Acquire:
		if (s.Outcome == rules.Granted || s.Outcome == rules.Joined) && op.Keep && op.Reacquire {
			o.regain(run{op.LockID, op.Run}, op.Call, op.LostSince)
		}
	case rules.Raise:
		if s.Outcome != rules.OtherRun {
			o.barred = append(o.barred, rules.Bar{LockID: op.LockID, Run: op.Run, Saga: op.Saga, Order: op.Order})
		}
	case rules.Leave: // a part that has left is not lost, and may be granted again under the fence of its hold
		delete(o.granted, part{op.LockID, op.Part, op.Order, false})
	case rules.TakeBack:
		delete(o.granted, part{op.LockID, op.Part, op.Order, false})
		for r, calls := range o.regained {
			alone := slices.ContainsFunc(s.before.Entries, func(e rules.Entry) bool {
				return e.ID == op.Call+"/k" || (e.State == rules.StateKept && e.ID == op.Call)
			})
			if r.lockID == op.LockID && alone {
				delete(calls, op.Call)
			}
		}
	case rules.Renew:
		p := part{op.LockID, op.Part, op.Order, false}
		if had, ever := o.granted[p]; ever && s.Outcome == rules.Lost {
			o.lost[p] = had
		}
	case rules.Release:
		if op.FirstFence == 0 && s.Outcome == rules.Granted {
			o.released[run{op.LockID, op.Run}] = max(op.Order, o.released[run{op.LockID, op.Run}])
			o.losses = slices.DeleteFunc(o.losses, func(e rules.Evidence) bool {
				return e.LockID == op.LockID && (op.Run == "" || e.Run == op.Run) && e.Order <= op.Order
			})
		}
	}
}

// regain records that a call was allowed to outlive the losses of a run, and those of any run from a time on.
func (o *observer) regain(r run, call string, since time.Time) {
	if o.regained[r] == nil {
		o.regained[r] = map[string]int64{}
	}
	for _, e := range o.losses {
		if e.LockID == r.lockID && (r.run == "" || e.Run == r.run || (!since.IsZero() && !e.At.Before(since))) {
			o.regained[r][call] = max(o.regained[r][call], e.Number)
		}
	}
}

// outlived returns the number of the newest evidence that a lock ID's hold may have outlived. Its requests may be
// those of runs before, from which it was taken over.
func (o *observer) outlived(s *step, lockID string) (newest int64) {
	if s.before.Kept(lockID) == nil {
		return 0
	}
	for r, calls := range o.regained {
		for _, number := range calls {
			if r.lockID == lockID {
				newest = max(newest, number)
			}
		}
	}
	return newest
}

// lostBy reports whether a run has lost what it kept, and has not regained it since, as far as the document
// remembers.
func (o *observer) lostBy(s *step, lockID, run string) bool {
	outlived := o.outlived(s, lockID)
	return slices.ContainsFunc(o.losses, func(e rules.Evidence) bool {
		return e.LockID == lockID && (run == "" || e.Run == run) && e.Number > outlived && slices.Contains(s.before.Evidence, e)
	})
}
