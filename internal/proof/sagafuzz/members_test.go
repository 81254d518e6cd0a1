package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var phones = Need{Name: "phones", Pool: true}

// uses is a successful attempt that had a member of the pool.
func uses(exec string, r workflowRun, call Call, member string, fence int64) []Record {
	log := attempt(exec, r, call)
	log[1].Held = []Held{{Resource: phones.Name, Fence: fence, Least: fence, Member: member}}
	return log
}

// Two parties may have two members, and not one. So may two workflows, of which one keeps what it has.
func TestCheck_MemberOfTwoParties_IsFound(t *testing.T) {
	t.Parallel()
	alone := func(member string) []Record {
		a, b := uses("a", w1, step(2, "", phones), "m", 1), uses("b", w2, step(2, "", phones), member, 2)
		return join(a[:2], b[:2], a[2:], b[2:])
	}
	kept := func(member string) []Record {
		mine := step(2, "1.1", phones)
		return join(uses("a", w1, mine, "m", 1), uses("b", w2, step(2, "", phones), member, 2), leaving("1.1", ""), returned("1.1", ""))
	}
	inLock := func(member string) []Record {
		lock := locked()
		lock[0].Needs, lock[0].Held = []Need{phones}, []Held{{Resource: phones.Name, Member: "m"}}
		return join(lock, uses("b", w2, step(2, "", phones), member, 2), leaving("5", ""), returned("5", ""))
	}
	for _, log := range []func(string) []Record{alone, kept, inLock} {
		require.Empty(t, checksOf(Check(twoSteps, log("n"))))
		require.Equal(t, []string{"isolation"}, checksOf(Check(twoSteps, log("m"))))
	}
}

// A write is refused to who has lost the member, and to an earlier attempt of the same workflow. It is not to who trusts its lease, because
// another workflow has written.
func TestCheckFenced_HolderIsRefused_IsFound(t *testing.T) {
	t.Parallel()
	refused := record(Record{What: Fenced, Exec: "a", Held: []Held{{Resource: phones.Name, Member: "m", Fence: 2}}})
	for name, c := range map[string]struct {
		by     workflowRun
		member string
		trusts bool
		want   []string
	}{
		"another workflow":                       {w2, "m", true, []string{"fenced"}},
		"another workflow, of which it knows":    {w2, "m", false, nil},
		"its own workflow":                       {w1, "m", true, nil},
		"another workflow, with another account": {w2, "n", true, nil},
	} {
		a := uses("a", w1, step(2, "", phones), "m", 1)
		log := join(a[:2], uses("b", c.by, step(3, "", phones), c.member, 2), refused, a[2:])
		if i := slices.IndexFunc(log, func(r Record) bool { return r.What == End && r.Exec == "a" }); !c.trusts {
			log[i].Trusted = log[0].At
		}
		s := Read(log)
		s.checkFenced()
		require.Equal(t, c.want, checksOf(s.violations), name)
	}
}

func TestCheckOneMember_SagaUsesTwo_IsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second []Record
		want   []string
	}{
		"its member":                          {uses("b", w1, step(3, "1.1", phones), "m", 1), nil},
		"another member":                      {uses("b", w1, step(3, "1.1", phones), "n", 2), []string{"member"}},
		"another member, as a step alone":     {uses("b", w1, step(3, "", phones), "n", 2), nil},
		"another member, in the next saga":    {uses("b", w1, step(3, "1.2", phones), "n", 2), nil},
		"a compensation of another member":    {undoes(uses("b", w1, step(2, "1.1", phones), "n", 2)), []string{"member"}},
		"a compensation of the saga's member": {undoes(uses("b", w1, step(2, "1.1", phones), "m", 2)), nil},
	} {
		s := Read(join(uses("a", w1, step(2, "1.1", phones), "m", 1), c.second))
		s.checkOneMember()
		require.Equal(t, c.want, checksOf(s.violations), name)
	}
}

func undoes(log []Record) []Record {
	log[0].Undo = true
	return log
}

// A member that was taken out is granted to who had it, or asked before.
func TestCheckOut_MemberIsGrantedLongAfter_IsFound(t *testing.T) {
	t.Parallel()
	change := func(kind, err string) []Record {
		return record(Record{What: Changed, Type: kind, Other: accountOf(phones.Name, "m"), Error: err})
	}
	mine := uses("a", w1, step(2, "", phones), "m", 1)
	again := join(mine, uses("b", w1, step(3, "", phones), "m", 2))
	for name, c := range map[string]struct {
		changes, after []Record
		seconds        int64
		want           []string
	}{
		"long after":                  {change("out", ""), mine, 16, []string{"out"}},
		"long after its removal":      {change("remove", ""), mine, 16, []string{"out"}},
		"soon after":                  {change("out", ""), mine, 14, nil},
		"if the outcome is not known": {change("out", "timeout"), mine, 16, nil},
		"if it is in again":           {slices.Concat(change("out", ""), change("in", "")), mine, 16, nil},
		"another one":                 {change("out", ""), uses("a", w1, step(2, "", phones), "n", 1), 16, nil},
		"if it had it before":         {change("out", ""), again[4:], 16, nil},
	} {
		log := join(c.changes, c.after)
		if name == "if it had it before" {
			log = join(mine, c.changes, c.after)
		}
		late := false
		for i := range log {
			if late = late || log[i].What == Changed; late && log[i].What != Changed {
				log[i].At += c.seconds * time.Second.Nanoseconds()
			}
			if log[i].What == Changed {
				log[i].Trusted = log[i].At
			}
		}
		s := Read(log)
		s.checkOut()
		require.Equal(t, c.want, checksOf(s.violations), name)
	}
}

// At least one member of each pool stays in service, and a mixed run has no pools.
func TestNewPlan_Pools_KeepAMember(t *testing.T) {
	t.Parallel()
	changes, pooled := map[string]bool{}, 0
	for seed := range uint64(20) {
		plan := NewPlan(seed)
		pools := map[string]*memberState{}
		for _, pool := range plan.Pools {
			pools[pool.Name] = &memberState{in: slices.Clone(pool.Members)}
			pooled++
		}
		for _, c := range plan.PoolChanges {
			changes[c.Kind] = true
			require.NotEmpty(t, pools[c.Pool].apply(c))
		}
		plan.mix()
		require.Empty(t, plan.Pools)
		for i := range plan.Workflows {
			plan.Workflows[i].Input.Body.each(func(n *Node) {
				require.False(t, slices.ContainsFunc(slices.Concat(n.Needs, n.Rule), func(n Need) bool { return n.Pool }))
			})
		}
	}
	require.Len(t, changes, 5)
	require.NotZero(t, pooled)
}

// memberState is which members are in service.
type memberState struct{ in []string }

func (s *memberState) apply(c PoolChange) []string {
	switch c.Kind {
	case "add", "in":
		s.in = append(s.in, c.Member)
	case "out", "remove":
		s.in = slices.DeleteFunc(s.in, func(m string) bool { return m == c.Member })
	}
	return s.in
}
