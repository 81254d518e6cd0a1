package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func memberHeld(by, member string) Entry {
	return Entry{Party: Party{Name: by}, Status: lockcore.Status{Holder: lockcore.Holder{
		LockID: by, Mode: lockcore.ModePool, Member: member, State: lockcore.StateHolding, ExpiresIn: time.Minute,
	}}}
}

func TestPool_String_TellsWhoHasTheMembers(t *testing.T) {
	t.Parallel()
	broken := map[string]string{"p2": "display broken"}
	expired := memberHeld("a", "p1")
	expired.ExpiresIn = 0
	for name, c := range map[string]struct {
		members []string
		out     map[string]string
		holders []Entry
		want    string
	}{
		"all":             {[]string{"p1", "p2"}, nil, []Entry{memberHeld("a", "p1"), memberHeld("b", "p2")}, "all 2 members are held by a, b"},
		"all in service":  {[]string{"p1", "p2", "p3"}, broken, []Entry{memberHeld("a", "p1"), memberHeld("b", "p3")}, "all 2 members in service are held by a, b; p2 is out of service (display broken)"},
		"one in service":  {[]string{"p1", "p2"}, broken, []Entry{memberHeld("a", "p1")}, "its only member in service is held by a; p2 is out of service (display broken)"},
		"one":             {[]string{"p1"}, nil, []Entry{memberHeld("a", "p1")}, "its only member is held by a"},
		"some":            {[]string{"p1", "p2", "p3"}, nil, []Entry{memberHeld("a", "p1")}, "1 of 3 members is held by a"},
		"none":            {[]string{"p1", "p2"}, nil, nil, "2 members, all free"},
		"expired":         {[]string{"p1", "p2"}, nil, []Entry{expired}, "2 members, all free"},
		"out":             {[]string{"p1", "p2"}, map[string]string{"p1": "", "p2": "lent"}, nil, "all 2 members are out of service; p1 is out of service, p2 is out of service (lent)"},
		"out and held":    {[]string{"p1", "p2"}, broken, []Entry{memberHeld("a", "p2")}, "1 member, all free; p2 is out of service (display broken), still held"},
		"removed":         {[]string{"p1"}, nil, []Entry{memberHeld("a", "p9")}, "1 member, all free"},
		"held before":     {[]string{"p1"}, nil, []Entry{memberHeld("a", "")}, "it is still held as a whole, by a"},
		"more than a few": {[]string{"p1", "p2", "p3", "p4", "p5", "p6"}, nil, []Entry{memberHeld("a", "p1"), memberHeld("b", "p2"), memberHeld("c", "p3"), memberHeld("d", "p4"), memberHeld("e", "p5"), memberHeld("f", "p6")}, "all 6 members are held by a, b, c, d, e, and 1 more"},
	} {
		pool := PoolOf(&lockcore.Policy{Name: "phones", Members: c.members, Out: c.out}, &Resource{Holders: c.holders})
		require.Equal(t, "phones: "+c.want, pool.String(), name)
	}
}

func TestResource_ExplainPools_ByRequest(t *testing.T) {
	t.Parallel()
	wait := func(mode lockcore.Mode, member string, p *lockcore.Policy) Entry {
		return Entry{Status: lockcore.Status{Policy: p, Holder: lockcore.Holder{Mode: mode, Member: member, State: lockcore.StateWaiting}}}
	}
	explain := func(r Resource) (texts []string) {
		r.Name = "phones"
		r.explainPools()
		for i := range r.Waiters {
			texts = append(texts, r.Waiters[i].PoolText())
		}
		return texts
	}
	p := &lockcore.Policy{Name: "phones", Members: []string{"p1"}}
	require.Equal(t, []string{"phones: its only member is held by a", "phones: it has lost p1 and gets no other member", ""},
		explain(Resource{Holders: []Entry{memberHeld("a", "p1")}, Waiters: []Entry{wait(lockcore.ModePool, "", p), wait(lockcore.ModePool, "p1", p), wait(lockcore.ModeExclusive, "", nil)}}))
	require.Equal(t, []string{"phones: there is no such pool: an operator has removed it"}, explain(Resource{Waiters: []Entry{wait(lockcore.ModePool, "", nil)}}))
	require.Equal(t, []string{""}, explain(Resource{Waiters: []Entry{wait(lockcore.ModePool, "", &lockcore.Policy{Unreadable: true})}}))
}
