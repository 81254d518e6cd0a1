package inspect

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Pool is a pool with its members, their holders and the queue.
type Pool struct {
	Name    string       `json:"pool"`
	Members []PoolMember `json:"members"`
	// Others hold the resource without a member, from before it was a pool. No member is granted until they have ended.
	Others []Entry `json:"others,omitempty"`
	// Waiters is the queue.
	Waiters []Entry `json:"waiters,omitempty"`
}

// PoolMember is a member of a pool, or a thing that was one and is still held.
type PoolMember struct {
	Name string `json:"member"`
	// Out is set while it is out of service, with the Reason.
	Out    bool   `json:"out,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Removed is set if it is no longer in the pool, and is still held.
	Removed bool `json:"removed,omitempty"`
	// Holders hold it, or were granted it. Expired holds are among them.
	Holders []Entry `json:"holders,omitempty"`
}

// Pool returns a pool with its members and queue, and nil if there is none of that name.
func (s *Site) Pool(ctx context.Context, name string) (*Pool, error) {
	policies, err := s.Policies(ctx)
	if err != nil {
		return nil, err
	}
	p := policies.Pool(s.ResourceName(name))
	if p == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	listed, err := s.Resources(ctx, lockcore.Filter{Resource: name})
	if err != nil {
		return nil, err
	}
	switch {
	case len(listed) == 0: // it was never locked
		return PoolOf(p, &Resource{}), nil
	case listed[0].Damaged != "":
		return nil, fmt.Errorf("%q %s; lockstep doctor has advice", listed[0].Name, listed[0].Damaged)
	}
	return PoolOf(p, &listed[0]), nil
}

// Pool returns the policy that makes a resource a pool, or nil.
func (p *Policies) Pool(name string) *lockcore.Policy {
	for i := range p.List {
		if one := &p.List[i]; isPool(one) && one.Name == name {
			return one
		}
	}
	return nil
}

// isPool reports whether a policy, or nil, makes a pool.
func isPool(p *lockcore.Policy) bool { return p != nil && len(p.Members) > 0 }

// PoolOf returns the pool that a policy makes of a resource.
func PoolOf(p *lockcore.Policy, r *Resource) *Pool {
	pool := &Pool{Name: p.Name, Waiters: r.Waiters}
	at := map[string]int{}
	for i, name := range p.Members {
		reason, out := p.Out[name]
		pool.Members = append(pool.Members, PoolMember{Name: name, Out: out, Reason: reason})
		at[name] = i
	}
	for _, h := range r.Holders {
		i, known := at[h.Member]
		if !known && h.Member == "" {
			pool.Others = append(pool.Others, h)
			continue
		}
		if !known {
			i = len(pool.Members)
			at[h.Member] = i
			pool.Members = append(pool.Members, PoolMember{Name: h.Member, Removed: true})
		}
		pool.Members[i].Holders = append(pool.Members[i].Holders, h)
	}
	return pool
}

// held reports whether an entry keeps others from getting the member.
func (m *PoolMember) held() bool {
	return slices.ContainsFunc(m.Holders, func(h Entry) bool { return h.ExpiresIn > 0 })
}

// State describes whether a member can be granted: "free", "held", "out of service" with the reason, or "removed".
func (m *PoolMember) State() string {
	held := ""
	if m.held() {
		held = ", still held"
	}
	switch {
	case m.Removed:
		return "removed" + held
	case m.Out:
		return "out of service" + inBrackets(m.Reason) + held
	case held != "":
		return "held"
	}
	return "free"
}

// inBrackets returns a text that is not empty as an insertion.
func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + table.Plain(text) + ")"
}

// Print prints a line for each member, and the queue.
func (p *Pool) Print(out io.Writer) error {
	rows := [][]string{{"MEMBER", "STATE", "HELD BY", "FOR", "ENDS"}}
	for i := range p.Members {
		m := &p.Members[i]
		row := []string{table.Plain(m.Name), m.State(), "-", "-", "-"}
		for j := range m.Holders {
			h := &m.Holders[j]
			name := table.Plain(h.Party.Name)
			if h.State != lockcore.StateHolding {
				name += " (" + string(h.State) + ")"
			}
			row[2], row[3], row[4] = name, Short(h.For), h.Ending()
			rows = append(rows, row)
			row = []string{"", "", "", "", ""}
		}
		if len(m.Holders) == 0 {
			rows = append(rows, row)
		}
	}
	if err := table.Write(out, rows...); err != nil {
		return err
	}
	for _, entries := range [][]Entry{p.Others, p.Waiters} {
		for i := range entries {
			if err := table.Fprintf(out, "%s %s\n", entries[i].Party.Name, &entries[i]); err != nil {
				return err
			}
		}
	}
	if len(p.Waiters) == 0 {
		return table.Fprintf(out, "no party waits\n")
	}
	return nil
}

// String describes in one line who has the members.
func (p *Pool) String() string {
	var names, out []string
	var members, inService, held int
	seen := map[string]bool{}
	for i := range p.Members {
		m := &p.Members[i]
		if m.Removed {
			continue
		}
		if members++; m.Out {
			out = append(out, table.Plain(m.Name)+" is "+m.State())
			continue
		}
		if inService++; !m.held() {
			continue
		}
		held++
		for _, h := range m.Holders {
			if name := table.Plain(h.Party.Name); h.ExpiresIn > 0 && !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	var text string
	switch of := table.Word(inService, "member", "members"); {
	case inService == 0 && members == 1:
		text = "its only member is out of service"
	case inService == 0:
		text = fmt.Sprintf("all %d members are out of service", members)
	case len(p.Others) > 0:
		text = "it is still held as a whole, by " + table.Plain(p.Others[0].Party.Name)
	case held == 0:
		text = fmt.Sprintf("%d %s, all free", inService, of)
	case held < inService:
		text = fmt.Sprintf("%d of %d %s %s held by %s", held, inService, of, table.Word(held, "is", "are"), firstNames(names))
	case held == 1:
		text = "its only member in service is held by " + firstNames(names)
		if members == 1 {
			text = "its only member is held by " + firstNames(names)
		}
	case members > inService:
		text = fmt.Sprintf("all %d members in service are held by %s", held, firstNames(names))
	default:
		text = fmt.Sprintf("all %d members are held by %s", held, firstNames(names))
	}
	if len(out) > 0 {
		text += "; " + firstNames(out)
	}
	return table.Plain(p.Name) + ": " + text
}

// StillHeld describes who holds members that are out of service or that were removed.
func (p *Pool) StillHeld() (lines []string) {
	for i := range p.Members {
		m := &p.Members[i]
		if !m.held() || !m.Out && !m.Removed {
			continue
		}
		for j := range m.Holders {
			h := &m.Holders[j]
			lines = append(lines, fmt.Sprintf("%s is still held: %s %s; it ends by itself, or by %s", m.Name, h.Party.Name, h, h.End))
		}
	}
	return lines
}

// hidePool returns the members of a policy, and those out of service, as a discreet site shows them.
func (s *Site) hidePool(p *lockcore.Policy) {
	members, out := p.Members, p.Out
	p.Members, p.Out = nil, nil
	for _, m := range members {
		hidden := s.ResourceName(m)
		p.Members = append(p.Members, hidden)
		if _, is := out[m]; is {
			if p.Out == nil {
				p.Out = map[string]string{}
			}
			p.Out[hidden] = ""
		}
	}
}

// member describes the member of a pool that an entry has or waits for.
func (e *Entry) member() string {
	if e.Member == "" {
		return "any member"
	}
	return "member " + table.Plain(e.Member)
}

// service describes a member that is not in service, for people; otherwise it returns the empty string.
func (e *Entry) service() string {
	p := e.Policy
	if e.Member == "" || p == nil || p.Unreadable {
		return ""
	}
	if reason, out := p.Out[e.Member]; out {
		text := ", which is out of service"
		if reason != "" {
			text += ": " + table.Plain(reason)
		}
		return text
	}
	if !slices.Contains(p.Members, e.Member) {
		return ", which is no longer in the pool"
	}
	return ""
}

// rank describes the priority of a waiter, unless it is the usual one.
func (e *Entry) rank() string {
	switch {
	case e.Promoted:
		return ", promoted"
	case e.State != lockcore.StateWaiting || e.Priority == usualPriority || e.Priority == 0:
		return ""
	}
	return fmt.Sprintf(", priority %d", e.Priority)
}

// usualPriority is that of requests that name none.
const usualPriority = 3

// explainPools sets the text about its pool in each waiter of a pool.
func (r *Resource) explainPools() {
	var policy *lockcore.Policy
	for _, e := range slices.Concat(r.Holders, r.Waiters) {
		if isPool(e.Policy) {
			policy = e.Policy
		}
	}
	text := table.Plain(r.Name) + ": there is no such pool: an operator has removed it"
	if policy != nil {
		text = PoolOf(policy, r).String()
	}
	for i := range r.Waiters {
		w := &r.Waiters[i]
		switch unreadable := w.Policy != nil && w.Policy.Unreadable; {
		case w.Mode != lockcore.ModePool, unreadable:
		case w.Member != "":
			w.pool = table.Plain(r.Name) + ": it has lost " + table.Plain(w.Member) + " and gets no other member"
		default:
			w.pool = text
		}
	}
}

// poolText describes the pool for which the first waiter waits that may get any member.
func (r *Resource) poolText() string {
	for i := range r.Waiters {
		if w := &r.Waiters[i]; w.Member == "" && w.pool != "" {
			return w.pool
		}
	}
	return ""
}

// PoolText describes the pool for which an entry waits, or returns the empty string.
func (e *Entry) PoolText() string { return e.pool }

// membersText describes the members of a pool for a table.
func membersText(p *lockcore.Policy) string {
	names := make([]string, len(p.Members))
	for i, m := range p.Members {
		names[i] = table.Plain(m)
		if reason, out := p.Out[m]; out {
			names[i] += " (out"
			if reason != "" {
				names[i] += ": " + table.Plain(reason)
			}
			names[i] += ")"
		}
	}
	return strings.Join(names, ", ")
}

// pools looks for members of several pools, pools without a member in service, and waiters that no policy lets in. It reads the
// documents with queues.
func (d *Doctor) pools(ctx context.Context) (Finding, error) {
	all, err := d.Locker.Policies(ctx)
	if err != nil {
		return Finding{}, err
	}
	resources, err := d.Resources(ctx, lockcore.Filter{Contended: true})
	if err != nil {
		return Finding{}, err
	}
	pools, of := map[string]*lockcore.Policy{}, map[string][]string{}
	var unusable []string
	for i := range all {
		p := &all[i]
		if !isPool(p) {
			continue
		}
		pools[p.Name] = p
		for _, m := range p.Members {
			of[m] = append(of[m], fmt.Sprintf("%q", d.ResourceName(p.Name)))
		}
		if len(p.Out) == len(p.Members) {
			unusable = append(unusable, fmt.Sprintf("%q", d.ResourceName(p.Name)))
		}
	}
	var twice []string
	for _, m := range slices.Sorted(maps.Keys(of)) {
		if len(of[m]) > 1 {
			twice = append(twice, fmt.Sprintf("%q (%s)", d.ResourceName(m), strings.Join(of[m], ", ")))
		}
	}
	refused := d.refusedWaiters(resources, pools)
	if len(twice) > 0 {
		return finding(Broken, fmt.Sprintf("%s in several pools, which grant %s independently of each other: %s", table.Count(len(twice), "member")+table.Word(len(twice), " is", " are"),
			table.Word(len(twice), "it", "them"), firstNames(twice)),
			"the collection was changed by hand: "+d.command("pool", "NAME", "--remove", "MEMBER")+" in all pools but one")
	}
	var what, advice []string
	if len(unusable) > 0 {
		what = append(what, fmt.Sprintf("%d %s no member in service: %s", len(unusable), table.Word(len(unusable), "has", "have"), firstNames(unusable)))
		advice = append(advice, "requests wait until "+d.command("pool", "NAME", "--in", "MEMBER"))
	}
	if len(refused) > 0 {
		what = append(what, fmt.Sprintf("on %s requests wait that are never granted: %s", table.Count(len(refused), "resource"), firstNames(refused)))
		advice = append(advice, "make the pool, by "+d.command("pool", "NAME", "MEMBER...")+", or change the programs: a pool grants only requests for a member")
	}
	switch {
	case len(what) > 0:
		return finding(Warning, strings.Join(what, "; "), strings.Join(advice, "; "))
	case len(pools) == 0:
		return ok("there is none")
	}
	return ok("%s members in service, and %s", table.Word(len(pools), "1 has", fmt.Sprintf("%d have", len(pools))), table.Word(len(pools), "shares none", "share none"))
}

// refusedWaiters describes the resources with waiters for a pool that does not exist, or with other waiters on a pool.
func (d *Doctor) refusedWaiters(resources []Resource, pools map[string]*lockcore.Policy) (refused []string) {
	for i := range resources {
		r := &resources[i]
		pool := pools[r.Name] != nil
		for j := range r.Waiters {
			w := &r.Waiters[j]
			unreadable := w.Policy != nil && w.Policy.Unreadable
			name := fmt.Sprintf("%q", d.ResourceName(r.Name))
			switch {
			case !pool && w.Mode == lockcore.ModePool && w.Member == "" && !unreadable:
				refused = append(refused, name+", which is no pool")
			case pool && w.Mode != lockcore.ModePool:
				refused = append(refused, name+", which is a pool, and asked for as "+w.Mode.String())
			default:
				continue
			}
			break
		}
	}
	return refused
}
