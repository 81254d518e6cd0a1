package lockcoretest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Harness is an engine under test, for whose documents time can be made to pass.
type Harness interface {
	rules.Engine
	// Travel lets d pass for the document of one resource. Where the clock is a server's, it moves every time in
	// the document back; those at rules.Never and after it stay. A negative d is for a command that began before others
	// that have taken effect already.
	Travel(ctx context.Context, resource string, d time.Duration) error
}

// Scenario is a story that every engine must play the same way.
type Scenario struct {
	// Name begins with what it is about: a rule of package engine, an invariant, or an operation.
	Name string
	play func(*stage)
}

// Run plays the scenario on resources that have no documents yet, and fails t if the engine does something else.
func (s Scenario) Run(t testing.TB, h Harness, resource string) {
	t.Helper()
	s.play(&stage{TB: t, h: h, resource: resource, name: resource})
}

// Scenarios returns all of them.
func Scenarios() []Scenario {
	return slices.Concat(ruleScenarios, refusalScenarios, queueScenarios, endingScenarios, passingScenarios, toldScenarios, batchScenarios, invariantScenarios, promiseScenarios, runScenarios)
}

// Conformance plays every scenario on an engine, each in a test of its own, in parallel. The setup is called once for
// each; the harnesses may share one store, since every scenario has its own resources.
func Conformance(t *testing.T, setup func(t *testing.T) Harness) {
	t.Helper()
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Run(t, setup(t), t.Name())
		})
	}
}

// stage is where a scenario plays: on one resource, unless it says otherwise.
type stage struct {
	testing.TB
	h        Harness
	resource string
	// name is the resource at first, and drawn counts what was asked for in series.
	name  string
	drawn int
}

// EngineFailed begins the message of a scenario in which the engine itself failed.
const EngineFailed = "the engine failed"

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", EngineFailed, err)
	}
}

// check fails the scenario, with what was expected, unless ok.
func (s *stage) check(ok bool, format string, args ...any) {
	s.Helper()
	if !ok {
		s.Fatalf("expected "+format, args...)
	}
}

// outcome fails the scenario unless the last write ended like this.
func (s *stage) outcome(d rules.Document, want rules.Outcome) *rules.Document {
	s.Helper()
	s.check(d.Last.Outcome == want, "outcome %q, got %q; held: %+v", want, d.Last.Outcome, d.Entries)
	return &d
}

// pass lets time pass.
func (s *stage) pass(d time.Duration) {
	s.Helper()
	s.must(s.h.Travel(s.Context(), s.resource, d))
}

// stored is the document as it stands.
func (s *stage) stored() *rules.Document {
	s.Helper()
	docs, err := s.h.Read(s.Context(), s.resource)
	s.must(err)
	s.check(len(docs) == 1, "one document of %q, got %d", s.resource, len(docs))
	return &docs[0]
}

// unchanged fails the scenario if the document differs from before in more than its count of writes, its time, and
// what the last write tells.
func (s *stage) unchanged(before *rules.Document) {
	s.Helper()
	after := s.stored()
	s.check(same(atRest(before), atRest(after)), "nothing to change, of\n%+v\ngot\n%+v", before, after)
}

// atRest is a document without the count of its writes, its time, and what the last write tells.
func atRest(d *rules.Document) rules.Document {
	rest := clone(*d)
	rest.Seq, rest.At, rest.Last, rest.IdleAt = 0, time.Time{}, rules.Last{}, time.Time{}
	slices.Sort(rest.Attn)
	return rest
}

// The TTLs of the scenarios, in the order of their lengths. They are minutes, so that nothing ends a moment early on a
// database whose clock goes on by itself.
const (
	partTTL   = 10 * time.Minute
	claimTTL  = 20 * time.Minute
	waiterTTL = 40 * time.Minute
	holdTTL   = 60 * time.Minute
)

var policy = rules.Policy{ClaimTTL: claimTTL.Milliseconds()}

// with changes an acquire.
type with func(*rules.Acquire)

func shared(op *rules.Acquire)    { op.Mode = rules.Shared }
func keep(op *rules.Acquire)      { op.Persist = true }
func queue(op *rules.Acquire)     { op.Queue = true }
func held(op *rules.Acquire)      { op.Held = true }
func reacquire(op *rules.Acquire) { op.Reacquire = true }
func newFence(op *rules.Acquire)  { op.NewFence = true }
func refresh(op *rules.Acquire)   { op.Queue, op.Refresh = true, true }
func forever(op *rules.Acquire)   { op.TTL, op.HoldTTL = 0, 0 }

// heardIn is when a waiter says that it will be heard of.
func heardIn(d time.Duration) with {
	return func(op *rules.Acquire) { op.HeardIn = d.Milliseconds() }
}

func limit(n int64) with { return func(op *rules.Acquire) { op.Mode, op.Limit = rules.Shared, n } }

func converts(order int64) with { return func(op *rules.Acquire) { op.Converts = order } }

func issued(at time.Time) with { return func(op *rules.Acquire) { op.Issued = at } }

func room(n int64) with { return func(op *rules.Acquire) { op.MaxWaiters = n } }

// request asks exclusively, for the shortest TTL, without a place in the queue.
func (s *stage) request(lockID, part string, order int64, changes ...with) rules.Acquire {
	op := rules.Acquire{
		Policy: policy, Resource: s.resource, LockID: lockID, Part: part, Order: order, Mode: rules.Exclusive,
		TTL: partTTL.Milliseconds(), HoldTTL: holdTTL.Milliseconds(), WaiterTTL: waiterTTL.Milliseconds(), MaxWaiters: 100,
		Owner: lockID, Host: "host", Comment: "comment", Trace: "trace",
	}
	for _, change := range changes {
		change(&op)
	}
	return op
}

// ask sends a request.
func (s *stage) ask(lockID, part string, order int64, changes ...with) rules.Document {
	s.Helper()
	d, err := s.h.Acquire(s.Context(), s.request(lockID, part, order, changes...))
	s.must(err)
	return d
}

// take asks, and expects to be granted.
func (s *stage) take(lockID, part string, order int64, changes ...with) *rules.Entry {
	s.Helper()
	return s.entry(s.outcome(s.ask(lockID, part, order, changes...), rules.Granted), lockID, part, order)
}

// join asks, and expects to join.
func (s *stage) join(lockID, part string, order int64, changes ...with) *rules.Entry {
	s.Helper()
	return s.entry(s.outcome(s.ask(lockID, part, order, changes...), rules.Joined), lockID, part, order)
}

// entry is the part that stands.
func (s *stage) entry(d *rules.Document, lockID, part string, order int64) *rules.Entry {
	s.Helper()
	e := d.Part(lockID, part, order)
	s.check(e != nil, "part %q of %q with order %d to stand, got %+v", part, lockID, order, d.Entries)
	return e
}

// wait asks for a place in the queue, and expects this one.
func (s *stage) wait(place int64, lockID, part string, order int64, changes ...with) {
	s.Helper()
	d := s.outcome(s.ask(lockID, part, order, append(changes, queue)...), rules.Queued)
	s.check(d.Last.Position == place, "place %d for %q, got %d", place, lockID, d.Last.Position)
}

func (s *stage) renew(lockID, part string, order int64) rules.Document {
	s.Helper()
	d, err := s.h.Renew(s.Context(), rules.Renew{Policy: policy, Resource: s.resource, LockID: lockID, Part: part, Order: order})
	s.must(err)
	return d
}

func (s *stage) retime(lockID, part string, order int64, ttl time.Duration) rules.Document {
	s.Helper()
	op := rules.Renew{Policy: policy, Resource: s.resource, LockID: lockID, Part: part, Order: order, TTL: ttl.Milliseconds()}
	d, err := s.h.Renew(s.Context(), op)
	s.must(err)
	return d
}

func (s *stage) downgrade(lockID, part string, order int64) rules.Document {
	s.Helper()
	op := rules.Renew{Policy: policy, Resource: s.resource, LockID: lockID, Part: part, Order: order, Downgrade: true}
	d, err := s.h.Renew(s.Context(), op)
	s.must(err)
	return d
}

func (s *stage) leave(lockID, part string, order int64) rules.Document {
	s.Helper()
	d, err := s.h.Leave(s.Context(), rules.Leave{Policy: policy, Resource: s.resource, LockID: lockID, Part: part, Order: order})
	s.must(err)
	return d
}

func (s *stage) undo(lockID, part string, order int64) rules.Document {
	s.Helper()
	op := rules.Leave{Policy: policy, Resource: s.resource, LockID: lockID, Part: part, Order: order, Undo: true}
	d, err := s.h.Leave(s.Context(), op)
	s.must(err)
	return d
}

func (s *stage) release(lockID string, order int64, leaving ...string) rules.Document {
	s.Helper()
	op := rules.Release{Policy: policy, Resource: s.resource, LockID: lockID, Order: order}
	if len(leaving) == 1 {
		op.Leaving = &leaving[0]
	}
	d, err := s.h.Release(s.Context(), op)
	s.must(err)
	return d
}

// endHold releases the hold that began with a fence.
func (s *stage) endHold(lockID string, first int64, changes ...func(*rules.Release)) rules.Document {
	s.Helper()
	op := rules.Release{Policy: policy, Resource: s.resource, LockID: lockID, FirstFence: first}
	for _, change := range changes {
		change(&op)
	}
	d, err := s.h.Release(s.Context(), op)
	s.must(err)
	return d
}

// force ends the hold that a lock ID has.
func (s *stage) force(lockID, reason string) {
	s.Helper()
	s.endHold(lockID, max(1, s.stored().HoldFence(lockID)), forced(reason))
}

func forced(reason string) func(*rules.Release) {
	return func(op *rules.Release) { op.Force, op.Reason = true, reason }
}

func leaving(part string, order int64) func(*rules.Release) {
	return func(op *rules.Release) { op.Leaving, op.Order = &part, order }
}

func atOnce(op *rules.Release) { op.Now = true }

// giveUp ends the place or the claim of a request, for a reason of another's.
func (s *stage) giveUp(lockID, part string, order int64, reason string) rules.Document {
	s.Helper()
	op := rules.Leave{Policy: policy, Resource: s.resource, LockID: lockID, Part: part, Order: order, Waiting: true, Reason: reason}
	d, err := s.h.Leave(s.Context(), op)
	s.must(err)
	return d
}

func (s *stage) withdraw(lockID, part string, order int64) rules.Document {
	s.Helper()
	op := rules.Withdraw{Policy: policy, Resource: s.resource, LockID: lockID, Part: part, Order: order, Reason: "deadlock"}
	d, err := s.h.Withdraw(s.Context(), op)
	s.must(err)
	return d
}

// claimed expects a claim for a part.
func (s *stage) claimed(lockID, part string) *rules.Entry {
	s.Helper()
	d := s.stored()
	c := d.Claim(lockID, part)
	s.check(c != nil, "a claim of %q, got %+v", lockID, d.Entries)
	return c
}
