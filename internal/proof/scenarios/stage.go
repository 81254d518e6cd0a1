package scenarios

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Scenario is an example of one rule.
type Scenario struct {
	// Name begins with the operation, the state or the invariant of the scenario.
	Name string
	play func(*stage)
}

// T reports that a scenario has failed. A *testing.T is one, and lockstep verify has one of its own, so
// that no command contains package testing.
type T interface {
	// Helper marks the calling function as a helper.
	Helper()
	// Fatalf records a failure and ends the goroutine that calls it.
	Fatalf(format string, args ...any)
}

// Run plays the scenario on a resource that has no document yet.
func (s Scenario) Run(t T, h Harness, resource string) {
	t.Helper()
	s.play(&stage{T: t, h: h, resource: resource})
}

// All returns all scenarios.
func All() []Scenario {
	return slices.Concat(acquireScenarios, upgradeScenarios, queueScenarios, claimScenarios, deadlockScenarios, spanScenarios,
		leaseScenarios, leaveScenarios, releaseScenarios, expiryScenarios, evidenceScenarios,
		runScenarios, verifyScenarios, compensationScenarios, withinScenarios, holdScenarios)
}

// stage runs a scenario on one resource of a harness.
type stage struct {
	T
	h        Harness
	resource string
}

// answer is the result of an operation.
type answer struct {
	*rules.Document
	rules.Result
}

// must fails the scenario if the harness returned an error.
func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("the harness failed: %v", err)
	}
}

// check fails the scenario with a description of the expectation, unless ok.
func (s *stage) check(ok bool, format string, args ...any) {
	s.Helper()
	if !ok {
		s.Fatalf("expected "+format, args...)
	}
}

// do applies an operation and expects an outcome.
func (s *stage) do(want rules.Outcome, op rules.Op) *answer {
	s.Helper()
	d, r, err := s.h.Apply(op)
	s.must(err)
	s.check(r.Outcome == want, "outcome %q, got %q for %+v; entries %+v", want, r.Outcome, op, d.Entries)
	return &answer{d, r}
}

// pass lets time pass.
func (s *stage) pass(d time.Duration) {
	s.Helper()
	s.must(s.h.Travel(s.resource, d))
}

// stored returns the document as it is stored.
func (s *stage) stored() *rules.Document {
	s.Helper()
	d, err := s.h.Stored(s.resource)
	s.must(err)
	return d
}

// unchanged expects that the document differs from before only in its version and the time of its write.
func (s *stage) unchanged(before *rules.Document) {
	s.Helper()
	a, b := before.Clone(), s.stored().Clone()
	for _, d := range []*rules.Document{a, b} {
		d.Version, d.At, d.IdleAt = rules.Version{}, time.Time{}, time.Time{}
	}
	s.check(reflect.DeepEqual(a, b), "no change of\n%+v\ngot\n%+v", a, b)
}

// The TTLs, from the shortest to the longest. They are minutes, so that nothing ends too early on a
// database whose clock runs.
const (
	partTTL   = 10 * time.Minute
	claimTTL  = 20 * time.Minute
	waiterTTL = 40 * time.Minute
	holdTTL   = 60 * time.Minute
)

// Policy is the policy of all operations of scenarios.
var Policy = rules.Policy{ClaimTTL: claimTTL.Milliseconds()}

// with changes an Acquire.
type with func(*rules.Acquire)

func shared(op *rules.Acquire)    { op.Mode = rules.Shared }
func keep(op *rules.Acquire)      { op.Persist = true }
func holdOnly(op *rules.Acquire)  { op.Persist, op.HoldOnly = true, true }
func queue(op *rules.Acquire)     { op.Queue = true }
func short(op *rules.Acquire)     { op.HoldTTL = op.TTL }
func held(op *rules.Acquire)      { op.HeldSince = rules.LastPlain }
func heldSince(order int64) with  { return func(op *rules.Acquire) { op.HeldSince = order } }
func lostSince(t time.Time) with  { return func(op *rules.Acquire) { op.LostSince = t } }
func reacquire(op *rules.Acquire) { op.Reacquire = true }
func newFence(op *rules.Acquire)  { op.NewFence = true }
func refresh(op *rules.Acquire)   { op.Queue, op.Refresh = true, true }
func forever(op *rules.Acquire)   { op.TTL, op.HoldTTL = 0, 0 }

func heardIn(d time.Duration) with {
	return func(op *rules.Acquire) { op.NextRefresh = d.Milliseconds() }
}
func limit(n int64) with        { return func(op *rules.Acquire) { op.Mode, op.Limit = rules.Shared, n } }
func maxWaiters(n int64) with   { return func(op *rules.Acquire) { op.MaxWaiters = n } }
func owner(name string) with    { return func(op *rules.Acquire) { op.Owner = name } }
func call(id string) with       { return func(op *rules.Acquire) { op.Call = id } }
func upgrades(id string) with   { return func(op *rules.Acquire) { op.Upgrades = id } }
func label(l string) with       { return func(op *rules.Acquire) { op.Label = l } }
func takeOver(l string) with    { return func(op *rules.Acquire) { op.TakeOver = l } }
func within(lockID string) with { return func(op *rules.Acquire) { op.Within = lockID } }
func saga(id string) with       { return func(op *rules.Acquire) { op.Saga = id } }

// request returns an exclusive request with the shortest TTL that does not queue. Requests with the same
// part and order have the same call ID, unless call changes it.
func (s *stage) request(lockID, part string, order int64, changes ...with) rules.Acquire {
	op := rules.Acquire{
		Policy: Policy, Resource: s.resource, Call: fmt.Sprintf("%s/%s/%d", lockID, part, order), LockID: lockID, Part: part, Order: order,
		Mode: rules.Exclusive, TTL: partTTL.Milliseconds(), HoldTTL: holdTTL.Milliseconds(), WaiterTTL: waiterTTL.Milliseconds(),
		MaxWaiters: 100, Owner: lockID, Host: "host", Comment: "comment", Trace: "trace",
	}
	for _, change := range changes {
		change(&op)
	}
	return op
}

// ask sends a request and expects an outcome.
func (s *stage) ask(want rules.Outcome, lockID, part string, order int64, changes ...with) *answer {
	s.Helper()
	return s.do(want, s.request(lockID, part, order, changes...))
}

// take expects that a request is granted, and returns its part.
func (s *stage) take(lockID, part string, order int64, changes ...with) *rules.Entry {
	s.Helper()
	return s.part(s.ask(rules.Granted, lockID, part, order, changes...).Document, lockID, part, order)
}

// join expects that a request joins the hold of its lock ID, and returns its part.
func (s *stage) join(lockID, part string, order int64, changes ...with) *rules.Entry {
	s.Helper()
	return s.part(s.ask(rules.Joined, lockID, part, order, changes...).Document, lockID, part, order)
}

// part expects that a part is running, and returns it.
func (s *stage) part(d *rules.Document, lockID, part string, order int64) *rules.Entry {
	s.Helper()
	e := d.Part(lockID, part, order)
	s.check(e != nil, "part %q of %q with order %d, got %+v", part, lockID, order, d.Entries)
	return e
}

// wait queues a request and expects a position.
func (s *stage) wait(position int64, lockID, part string, order int64, changes ...with) {
	s.Helper()
	a := s.ask(rules.Queued, lockID, part, order, append(changes, queue)...)
	s.check(a.Position == position, "position %d for %q, got %d", position, lockID, a.Position)
}

// waiting expects these lock IDs in the queue, in this order.
func (s *stage) waiting(want ...string) {
	s.Helper()
	got := []string{}
	for _, w := range s.stored().Waiters {
		got = append(got, w.LockID)
	}
	s.check(slices.Equal(got, want), "%q to wait, got %q", want, got)
}

// claimed expects a claim of a part, and returns it.
func (s *stage) claimed(lockID, part string) *rules.Entry {
	s.Helper()
	c := s.stored().Claim(lockID, part)
	s.check(c != nil, "a claim of %q, got %+v", lockID, s.stored().Entries)
	return c
}

// unclaimed expects that a part has no claim.
func (s *stage) unclaimed(lockID, part string) {
	s.Helper()
	s.check(s.stored().Claim(lockID, part) == nil, "no claim of %q, got %+v", lockID, s.stored().Entries)
}

// entries expects a number of entries.
func (s *stage) entries(n int) []rules.Entry {
	s.Helper()
	all := s.stored().Entries
	s.check(len(all) == n, "%d entries, got %+v", n, all)
	return all
}

func (s *stage) settle() {
	s.Helper()
	s.do(rules.Granted, rules.Settle{Policy: Policy, Resource: s.resource})
}

func (s *stage) renew(want rules.Outcome, lockID, part string, order int64, changes ...func(*rules.Renew)) *answer {
	s.Helper()
	op := rules.Renew{Policy: Policy, Resource: s.resource, LockID: lockID, Part: part, Order: order}
	for _, change := range changes {
		change(&op)
	}
	return s.do(want, op)
}

func downgrade(op *rules.Renew) { op.Downgrade = true }

func newTTL(d time.Duration) func(*rules.Renew) {
	return func(op *rules.Renew) { op.TTL = d.Milliseconds() }
}

func (s *stage) leave(lockID, part string, order int64, changes ...func(*rules.Leave)) *answer {
	s.Helper()
	op := rules.Leave{Policy: Policy, Resource: s.resource, LockID: lockID, Part: part, Order: order}
	for _, change := range changes {
		change(&op)
	}
	return s.do(rules.Granted, op)
}

func keeping(op *rules.Leave)     { op.Keep, op.HoldTTL = true, holdTTL.Milliseconds() }
func waitingOnly(op *rules.Leave) { op.QueueOnly = true }

func of(label string) func(*rules.Leave) { return func(op *rules.Leave) { op.Label = label } }

// takeBack takes back what a call was granted, by default the one that request makes.
func (s *stage) takeBack(lockID, part string, order int64, call ...string) *answer {
	s.Helper()
	op := rules.TakeBack{Policy: Policy, Resource: s.resource, LockID: lockID, Part: part, Order: order, Call: fmt.Sprintf("%s/%s/%d", lockID, part, order)}
	if len(call) > 0 {
		op.Call = call[0]
	}
	return s.do(rules.Granted, op)
}

func (s *stage) release(lockID string, order int64, changes ...func(*rules.Release)) *answer {
	s.Helper()
	op := rules.Release{Policy: Policy, Resource: s.resource, LockID: lockID, Order: order}
	for _, change := range changes {
		change(&op)
	}
	return s.do(rules.Granted, op)
}

func ofRun(label string) func(*rules.Release) { return func(op *rules.Release) { op.Label = label } }
func began(fence int64) func(*rules.Release) {
	return func(op *rules.Release) { op.FirstFence = fence }
}
func stopped(part string) func(*rules.Release) { return func(op *rules.Release) { op.Leaving = &part } }
func forced(reason string) func(*rules.Release) {
	return func(op *rules.Release) { op.Force, op.Reason = true, reason }
}
func atOnce(op *rules.Release)    { op.Now = true }
func committed(op *rules.Release) { op.Committed = true }

// force releases the hold of a lock ID by force.
func (s *stage) force(lockID, reason string) {
	s.Helper()
	s.release(lockID, 0, began(max(1, s.stored().HoldFence(lockID))), forced(reason))
}

func (s *stage) withdraw(want rules.Outcome, lockID, part string, order int64) *answer {
	s.Helper()
	return s.do(want, rules.Withdraw{Policy: Policy, Resource: s.resource, LockID: lockID, Part: part, Order: order, Reason: "deadlock"})
}

func (s *stage) verify(want rules.Outcome, lockID, label string, used int64, changes ...func(*rules.Verify)) *answer {
	s.Helper()
	op := rules.Verify{Policy: Policy, Resource: s.resource, LockID: lockID, Label: label, Used: used}
	for _, change := range changes {
		change(&op)
	}
	return s.do(want, op)
}

// raise bars run "one" of a lock ID in saga "s" up to an order.
func (s *stage) raise(want rules.Outcome, lockID string, order int64, changes ...func(*rules.Raise)) *answer {
	s.Helper()
	op := rules.Raise{Policy: Policy, Resource: s.resource, LockID: lockID, Label: "one", Saga: "s", Order: order}
	for _, change := range changes {
		change(&op)
	}
	return s.do(want, op)
}

// ofSaga makes a bar one of another saga.
func ofSaga(id string) func(*rules.Raise) { return func(op *rules.Raise) { op.Saga = id } }

// bars returns the bars of a lock ID as it is stored.
func (s *stage) bars(lockID string) (all []rules.Bar) {
	s.Helper()
	for b := range s.stored().AllBars(lockID) {
		all = append(all, *b)
	}
	return all
}

func replaces(label string) func(*rules.Raise) { return func(op *rules.Raise) { op.TakeOver = label } }
