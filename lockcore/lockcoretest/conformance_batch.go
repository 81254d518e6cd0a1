package lockcoretest

import (
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// batchScenarios show the operations on several resources.
var batchScenarios = []Scenario{
	{"RenewAll/it extends parts on many resources, and their holds", func(s *stage) {
		names := s.several("a", "p", 1)
		s.resource = names[0]
		s.pass(partTTL - time.Minute)
		renewed, err := s.h.RenewAll(s.Context(), renewals(names, "a", "p", 1))
		s.must(err)
		s.check(same(renewed, []bool{true, true, true}), "all to be renewed, got %v", renewed)
		s.pass(time.Minute)
		s.outcome(s.ask("b", "p", 1), rules.Busy)
		e := s.entry(s.stored(), "a", "p", 1)
		s.check(e.RenewedAt != nil, "the time of the renewal, got %+v", e)
	}},
	{"RenewAll/what is lost is left out, and what is not stands", func(s *stage) {
		names := s.several("a", "p", 1)
		s.resource = names[1]
		s.leave("a", "p", 1)
		before := s.stored()
		renewed, err := s.h.RenewAll(s.Context(), append(renewals(names, "a", "p", 1), rules.Renew{Resource: names[0] + "/none", LockID: "a", Part: "p", Order: 1}))
		s.must(err)
		s.check(same(renewed, []bool{true, false, true, false}), "two to be renewed, got %v", renewed)
		s.check(s.stored().Seq == before.Seq, "the document as it was, got %+v", s.stored())
	}},
	{"RenewAll/of one document all are extended, or none", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		both := []rules.Renew{
			{Resource: s.resource, LockID: "a", Part: "p", Order: 1},
			{Resource: s.resource, LockID: "b", Part: "p", Order: 1},
		}
		renewed, err := s.h.RenewAll(s.Context(), both)
		s.must(err)
		s.check(same(renewed, []bool{true, true}), "both, got %v", renewed)
		both[1].Order = 2
		before := s.stored()
		renewed, err = s.h.RenewAll(s.Context(), both)
		s.must(err)
		s.check(same(renewed, []bool{false, false}), "none, got %v", renewed)
		s.unchanged(before)
	}},
	{"RenewAll/it settles nothing", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		s.wait(1, "c", "p", 1, limit(2))
		s.pass(partTTL)
		_, err := s.h.RenewAll(s.Context(), []rules.Renew{{Resource: s.resource, LockID: "a", Part: "p", Order: 1}})
		s.must(err)
		s.check(len(s.stored().Waiters) == 1, "c to wait, got %+v", s.stored())
	}},
	{"AcquireAll/it grants what is free, in whatever mode, as Acquire does", func(s *stage) {
		for _, change := range []with{keep, shared, limit(2), forever, newFence} {
			ops := s.requests(4, "a", 1, change)
			docs, err := s.h.AcquireAll(s.Context(), ops)
			s.must(err)
			s.check(len(docs) == 4, "four documents, got %+v", docs)
			for i, op := range ops {
				s.resource = op.Resource
				s.outcome(docs[i], rules.Granted)
				e := s.entry(&docs[i], "a", "p", 1)
				s.check(docs[i].ID == op.Resource && e.Fence > 0 && e.Fence == e.FirstFence && e.Mode == op.Mode, "the hold of %+v, got %+v", op, e)
				s.check(same(s.entry(s.stored(), "a", "p", 1), e), "what is stored, got %+v", e)
				s.outcome(s.ask("a", "p", 1, change), rules.Again)
				s.outcome(s.ask("b", "p", 1), rules.Busy)
			}
		}
	}},
	{"AcquireAll/it stops at what somebody has, and touches nothing beyond", func(s *stage) {
		ops := s.requests(4, "a", 1)
		s.resource = ops[2].Resource
		s.take("b", "p", 1)
		before := s.stored()
		docs, err := s.h.AcquireAll(s.Context(), ops)
		s.must(err)
		s.check(len(docs) == 2, "two documents, got %+v", docs)
		s.unchanged(before)
		s.nothing(ops[3].Resource)
	}},
	{"AcquireAll/it stops where somebody waits, or where the lock ID has something already", func(s *stage) {
		for _, there := range []func(){
			func() { s.take("b", "p", 1); s.wait(1, "c", "p", 1); s.leave("b", "p", 1) },
			func() { s.take("a", "p", 1) },
			func() { s.take("a", "p", 2); s.leave("a", "p", 2) },
			func() { s.take("a", "p", 1, keep); s.force("a", "by hand") },
		} {
			ops := s.requests(4, "a", 1, keep)
			s.resource = ops[2].Resource
			there()
			before := s.stored()
			docs, err := s.h.AcquireAll(s.Context(), ops)
			s.must(err)
			s.check(len(docs) == 2, "two documents, got %+v", docs)
			s.unchanged(before)
			s.nothing(ops[3].Resource)
		}
	}},
	{"AcquireAll/repeated, and late, it grants nothing", func(s *stage) {
		ops := s.requests(3, "a", 1)
		_, err := s.h.AcquireAll(s.Context(), ops)
		s.must(err)
		for _, op := range ops[1:] {
			s.resource = op.Resource
			s.leave("a", "p", 1)
		}
		docs, err := s.h.AcquireAll(s.Context(), ops)
		s.must(err)
		s.check(len(docs) == 0 && s.stored().Part("a", "p", 1) == nil, "nothing to be granted, got %+v", docs)
		id, err := s.h.Identify(s.Context())
		s.must(err)
		late := s.requests(3, "a", 1, issued(id.At.Add(-time.Minute)))
		docs, err = s.h.AcquireAll(s.Context(), late)
		s.must(err)
		for _, op := range late {
			s.resource = op.Resource
			s.check(len(docs) == 0 && s.ask("b", "p", 1).Last.Outcome == rules.Granted, "nothing to be granted, got %+v", docs)
		}
	}},
	{"Read/it answers with what is stored, queue included, at the server's time", func(s *stage) {
		s.take("a", "p", 1)
		s.wait(1, "b", "p", 1)
		docs, err := s.h.Read(s.Context(), s.resource, s.resource+"/none")
		s.must(err)
		s.check(len(docs) == 1 && docs[0].ID == s.resource, "one document, got %+v", docs)
		d := docs[0]
		s.check(len(d.Entries) == 1 && len(d.Waiters) == 1 && d.Waiters[0].LockID == "b", "the document, got %+v", d)
		s.check(!d.At.Before(d.Waiters[0].Since), "a time, got %v", d.At)
	}},
	{"List/it streams documents by name, and by who holds or waits", func(s *stage) {
		names := s.several("a", "p", 1)
		s.resource = names[1]
		s.wait(1, "waiter", "p", 1, func(op *rules.Acquire) { op.Owner = "saga" })
		s.check(same(s.list(rules.Query{Prefix: names[0][:len(names[0])-1]}), names), "all three in order")
		s.check(same(s.list(rules.Query{Resource: names[2]}), names[2:]), "the one of that name")
		for _, q := range []rules.Query{{LockID: "waiter"}, {Owner: "saga"}, {Waiting: true}, {Contended: true}} {
			q.Prefix = names[0][:len(names[0])-1]
			s.check(slices.Contains(s.list(q), names[1]), "%+v to find who waits", q)
		}
	}},
	{"List/what is contended or kept is listed without plain holds", func(s *stage) {
		base := s.resource
		listed := func(name string, want bool) {
			s.Helper()
			s.resource = base + "/" + name
			got := s.list(rules.Query{Prefix: s.resource, Contended: true})
			s.check(slices.Contains(got, s.resource) == want, "%q to be listed: %v, got %v", s.resource, want, got)
		}
		listed("plain", false)
		s.take("a", "p", 1)
		listed("plain", false)
		s.wait(1, "b", "p", 1)
		listed("plain", true)
		s.leave("a", "p", 1)
		listed("plain", true) // a claim
		s.take("b", "p", 1)
		listed("plain", false)
		s.join("b", "p", 2)
		listed("plain", true) // a draining part
		s.leave("b", "p", 1)
		listed("plain", false)
		renewed, err := s.h.RenewAll(s.Context(), renewals([]string{s.resource}, "b", "p", 2))
		s.must(err)
		s.check(same(renewed, []bool{true}), "it to be renewed, got %v", renewed)
		listed("plain", false)
		listed("kept", false)
		s.take("a", "p", 1, keep)
		listed("kept", true)
		s.leave("a", "p", 1)
		listed("kept", true)
		s.release("a", 1)
		listed("kept", false)
		listed("displaced", false)
		s.take("a", "p", 1, keep)
		s.pass(holdTTL)
		s.take("b", "p", 1)
		s.leave("b", "p", 1)
		listed("displaced", false)
	}},
	{"List/it stops when nobody wants more", func(s *stage) {
		s.several("a", "p", 1)
		for d, err := range s.h.List(s.Context(), rules.Query{Prefix: s.resource}) {
			s.must(err)
			s.check(d.ID == s.resource+"/1", "the first, got %q", d.ID)
			break
		}
	}},
}

// requests are of one part, for resources that have no documents yet.
func (s *stage) requests(n int, lockID string, order int64, changes ...with) []rules.Acquire {
	s.drawn++
	ops := make([]rules.Acquire, n)
	for i := range ops {
		ops[i] = s.request(lockID, "p", order, changes...)
		ops[i].Resource = fmt.Sprintf("%s/%d/%d", s.name, s.drawn, i)
	}
	return ops
}

// nothing checks that a resource has no document.
func (s *stage) nothing(resource string) {
	s.Helper()
	docs, err := s.h.Read(s.Context(), resource)
	s.must(err)
	s.check(len(docs) == 0, "no document of %q, got %+v", resource, docs)
}

// several takes three resources, and returns their names.
func (s *stage) several(lockID, part string, order int64) []string {
	base := s.resource
	names := []string{base + "/1", base + "/2", base + "/3"}
	for _, s.resource = range names {
		s.take(lockID, part, order)
	}
	s.resource = base
	return names
}

func renewals(names []string, lockID, part string, order int64) []rules.Renew {
	ops := make([]rules.Renew, len(names))
	for i, name := range names {
		ops[i] = rules.Renew{Policy: policy, Resource: name, LockID: lockID, Part: part, Order: order}
	}
	return ops
}

func (s *stage) list(q rules.Query) []string {
	s.Helper()
	var names []string
	for d, err := range s.h.List(s.Context(), q) {
		s.must(err)
		names = append(names, d.ID)
	}
	return names
}
