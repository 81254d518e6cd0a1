package lockcoretest

import (
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
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
		s.outcome(s.ask("b", "p", 1), engine.Busy)
		e := s.entry(s.stored(), "a", "p", 1)
		s.check(e.RenewedAt != nil, "the time of the renewal, got %+v", e)
	}},
	{"RenewAll/what is lost is left out, and what is not stands", func(s *stage) {
		names := s.several("a", "p", 1)
		s.resource = names[1]
		s.leave("a", "p", 1)
		before := s.stored()
		renewed, err := s.h.RenewAll(s.Context(), append(renewals(names, "a", "p", 1), engine.Renew{Resource: names[0] + "/none", LockID: "a", Part: "p", Order: 1}))
		s.must(err)
		s.check(same(renewed, []bool{true, false, true, false}), "two to be renewed, got %v", renewed)
		s.check(s.stored().Seq == before.Seq, "the document as it was, got %+v", s.stored())
	}},
	{"RenewAll/of one document all are extended, or none", func(s *stage) {
		s.take("a", "p", 1, shared)
		s.take("b", "p", 1, shared)
		both := []engine.Renew{
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
		_, err := s.h.RenewAll(s.Context(), []engine.Renew{{Resource: s.resource, LockID: "a", Part: "p", Order: 1}})
		s.must(err)
		s.check(len(s.stored().Waiters) == 1, "c to wait, got %+v", s.stored())
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
		s.wait(1, "waiter", "p", 1, func(op *engine.Acquire) { op.Owner = "saga" })
		s.check(same(s.list(engine.Query{Prefix: names[0][:len(names[0])-1]}), names), "all three in order")
		s.check(same(s.list(engine.Query{Resource: names[2]}), names[2:]), "the one of that name")
		for _, q := range []engine.Query{{LockID: "waiter"}, {Owner: "saga"}, {Waiting: true}, {Contended: true}} {
			q.Prefix = names[0][:len(names[0])-1]
			s.check(slices.Contains(s.list(q), names[1]), "%+v to find who waits", q)
		}
	}},
	{"List/what is contended or kept is listed without plain holds", func(s *stage) {
		base := s.resource
		listed := func(name string, want bool) {
			s.Helper()
			s.resource = base + "/" + name
			got := s.list(engine.Query{Prefix: s.resource, Contended: true})
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
		for d, err := range s.h.List(s.Context(), engine.Query{Prefix: s.resource}) {
			s.must(err)
			s.check(d.ID == s.resource+"/1", "the first, got %q", d.ID)
			break
		}
	}},
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

func renewals(names []string, lockID, part string, order int64) []engine.Renew {
	ops := make([]engine.Renew, len(names))
	for i, name := range names {
		ops[i] = engine.Renew{Policy: policy, Resource: name, LockID: lockID, Part: part, Order: order}
	}
	return ops
}

func (s *stage) list(q engine.Query) []string {
	s.Helper()
	var names []string
	for d, err := range s.h.List(s.Context(), q) {
		s.must(err)
		names = append(names, d.ID)
	}
	return names
}
