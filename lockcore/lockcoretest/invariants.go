package lockcoretest

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Step is one operation that an engine applied to the document of one resource.
type Step struct {
	// Op is the operation: an rules.Acquire, rules.Renew, rules.Leave, rules.Release or
	// rules.Withdraw; or a []rules.Renew that was extended as a batch.
	Op any
	// Before and After are the document, queue included, as the operation found and left it.
	Before, After rules.Document
}

// Invariants is an observer who watches one resource, remembers everything that its parties were told, and
// says when a step breaks a promise. It does not know how the answers come about: it holds the
// specification to the promises as it holds any engine to them. They are:
//
//	I1  while a part trusts an exclusive lease, no other lock ID's part trusts one
//	I2  when a shared request with a limit is granted, fewer others than that are live
//	I3  fences strictly increase over grants
//	I4  no waiter is overtaken by a later request that is in its way, upgrades apart
//	I5  an operation touches only what it names
//	I6  an operation that is repeated ends as if it had run once, and a late copy changes nothing
//	I8  what was reported lost is not reported held again
//	I9  what is dead delays no other, and no party has to act for that
//	I10 what a caller passes is stored as it is
//	I12 who was taken out of the queue to end a deadlock is told so, and no other is
//
// Time may run backwards between steps, as a server's does where the later of two commands began earlier.
//
// Its zero value watches a resource that has no document yet.
type Invariants struct {
	// latest is the latest time that was seen.
	latest time.Time

	// told is what each part was promised, and may trust.
	told map[request]promise
	// fence is the highest that was seen.
	fence int64
	// granted are the parts that were told that they hold, ever, with the last fence of each.
	granted map[request]int64
	// lost are the parts that were reported lost, with the fence that they had.
	lost map[request]int64
	// evictions counts the records of displaced holds, and evicted has the count at each lock ID's own.
	evictions int
	evicted   map[run]int
	// replaced are the runs that another one took over from, and within the lock IDs around others.
	replaced map[run]bool
	within   map[string]string
	// ended is what was left or released, in that order.
	ended []rules.Released
}

type request struct {
	lockID, part string
	order        int64
}

type promise struct {
	// until is when it ends, and heard when it was confirmed last.
	until, heard time.Time
	mode         string
}

// Check returns an error that names the promise which the step broke.
func (v *Invariants) Check(s Step) error {
	if v.told == nil {
		v.told, v.granted, v.lost, v.evicted = map[request]promise{}, map[request]int64{}, map[request]int64{}, map[run]int{}
		v.replaced, v.within = map[run]bool{}, map[string]string{}
	}
	checks := []struct {
		name  string
		check func(*Step) error
	}{
		{"I6", v.late}, {"I8", v.neverHeldAgain}, {"I3", v.fences},
		{"I1", v.alone}, {"I1", lasting}, {"I2", v.limits}, {"I4", firstCome}, {"I5", named}, {"I9", noDelay}, {"I10", verbatim}, {"I12", told},
	}
	v.latest = later(v.latest, s.now())
	if err := v.speaks(&s); err != nil {
		return fmt.Errorf("I5: after %+v: %w", s.Op, err)
	}
	v.hear(&s)
	for _, c := range checks {
		if err := c.check(&s); err != nil {
			return fmt.Errorf("%s: after %+v: %w", c.name, s.Op, err)
		}
	}
	v.remember(&s)
	return nil
}

// Shift tells that every time in the document was moved back, which is what the passing of time looks like where the
// clock is the server's.
func (v *Invariants) Shift(back time.Duration) {
	for r, p := range v.told {
		if p.until.Before(rules.Never) {
			p.until = p.until.Add(-back)
		}
		p.heard = p.heard.Add(-back)
		v.told[r] = p
	}
}

func (s *Step) now() time.Time { return s.After.At }

// granted is the entry of the part that an acquire, or a renewal, was told to hold.
func (s *Step) granted() *rules.Entry {
	switch op := s.Op.(type) {
	case rules.Acquire:
		switch s.After.Last.Outcome {
		case rules.Granted, rules.Joined, rules.Again:
			return s.After.Part(op.LockID, op.Part, op.Order)
		}
	case rules.Renew:
		if s.After.Last.Outcome == rules.Granted {
			return s.After.Part(op.LockID, op.Part, op.Order)
		}
	}
	return nil
}

// hear updates what the parts trust: who is told that it holds does, and who leaves does not any more.
func (v *Invariants) hear(s *Step) {
	tell := func(e *rules.Entry) {
		if e != nil {
			v.told[request{e.LockID, e.Part, e.Order}] = promise{until: e.ExpiresAt, heard: s.now(), mode: e.Mode}
		}
	}
	tell(s.granted())
	if op, ok := s.Op.(rules.Acquire); ok && op.Converts > 0 && s.granted() != nil {
		delete(v.told, request{op.LockID, op.Part, op.Converts})
	}
	switch op := s.Op.(type) {
	case []rules.Renew:
		for _, r := range op {
			tell(s.After.Part(r.LockID, r.Part, r.Order))
		}
	case rules.Leave:
		delete(v.told, request{op.LockID, op.Part, op.Order})
		if op.Label != "" {
			delete(v.told, request{rules.CutOff(op.LockID), op.Part, op.Order})
		}
	case rules.Release:
		if op.Leaving != nil {
			delete(v.told, request{op.LockID, *op.Leaving, op.Order})
		}
		for _, e := range s.Before.Entries {
			if op.Now && endsHold(&op, &e) { // its caller knows it to be dead
				delete(v.told, request{e.LockID, e.Part, e.Order})
			}
		}
	}
	for r, p := range v.told {
		// A party that was promised the lock without end, and is cut off, trusts as if it had been promised EndlessTTL, less the margin.
		if !p.until.Before(rules.Never) && s.After.Part(r.lockID, r.part, r.order) == nil {
			p.until = p.heard.Add(rules.EndlessTTL - rules.EndlessTTL/10)
			v.told[r] = p
		}
		if !p.until.After(s.now()) {
			delete(v.told, r)
		}
	}
}

// remember takes down what later steps are held to.
func (v *Invariants) remember(s *Step) {
	v.fence = max(v.fence, s.After.Fence)
	for _, e := range s.After.Entries {
		v.fence = max(v.fence, e.Fence)
	}
	if e := s.granted(); e != nil {
		v.granted[request{e.LockID, e.Part, e.Order}] = e.Fence
	}
	for _, e := range s.Before.Evicted { // it may be forgotten
		if !e.At.After(s.After.At.Add(-randomRetention)) {
			delete(v.evicted, run{e.LockID, e.Label})
			delete(v.replaced, run{e.LockID, e.Label})
		}
	}
	for _, e := range s.After.Last.Expired {
		if s.After.HoldFence(e.LockID) == e.FirstFence {
			continue // a part went, and what is kept stands
		}
		v.evictions++
		v.evicted[run{e.LockID, e.Label}] = v.evictions
	}
	switch op := s.Op.(type) {
	case rules.Acquire:
		// A party that knows of its loss, and asks again, may come into what another run of its party had.
		if outcome := s.After.Last.Outcome; outcome == rules.Granted || (outcome == rules.Joined && op.Persist && op.Reacquire) {
			delete(v.evicted, run{op.LockID, op.Label})
		}
	case rules.Renew:
		r := request{op.LockID, op.Part, op.Order}
		if had, ever := v.granted[r]; ever && s.After.Last.Outcome == rules.Lost {
			v.lost[r] = had
		}
	case rules.Leave:
		v.ended = append(v.ended, rules.Released{LockID: op.LockID, Part: &op.Part, Order: op.Order})
	case rules.Release:
		if refused(s, &op) {
			return
		}
		if op.FirstFence == 0 {
			v.ended = append(v.ended, rules.Released{LockID: op.LockID, Label: op.Label, Order: op.Order})
			for r := range v.evicted {
				if r.lockID == op.LockID && (op.Label == "" || r.label == op.Label) {
					delete(v.evicted, r)
				}
			}
		}
		for _, e := range s.Before.Entries {
			if !endsHold(&op, &e) {
				continue
			}
			if e.State == rules.StateRunning {
				v.ended = append(v.ended, rules.Released{LockID: op.LockID, Part: &e.Part, Order: e.Order})
			}
			// A forced release leaves a record for each entry that told of a hold.
			if op.Force && e.Holds() && e.CreatedAt != nil {
				v.evictions++
				v.evicted[run{e.LockID, e.Label}] = v.evictions
			}
		}
	}
}

// refused reports whether a release found that what it was to end is not kept.
func refused(s *Step, op *rules.Release) bool {
	return op.Used > 0 && s.After.Last.Outcome == rules.Lost
}

// endsHold reports whether a release names the hold that an entry belongs to.
func endsHold(op *rules.Release, e *rules.Entry) bool {
	ours := e.LockID == op.LockID && (op.Label == "" || e.Label == op.Label)
	if op.Force {
		ours = ours || e.LockID == rules.CutOff(op.LockID)
	}
	return op.FirstFence > 0 && ours && e.FirstFence == op.FirstFence
}

// standing is the queue before the step without the places that were not refreshed.
func standing(s *Step) []rules.Waiter {
	return pick(s.Before.Waiters, func(w rules.Waiter) bool { return w.ExpiresAt.After(s.now()) })
}

// awake is the queue before the step without those who are passed over.
func awake(s *Step) []rules.Waiter { return pick(standing(s), s.serves) }

// serves reports whether a waiter may be granted something by the step.
func (s *Step) serves(w rules.Waiter) bool { return w.Waits(s.now()) && !w.Overdue(s.now()) }
