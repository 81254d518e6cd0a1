package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// section is a part of a document that "show" prints in one line.
type section struct {
	name string
	// always is set if show prints the section without being asked for it, provided that it has any content.
	always bool
	text   func(p *player, fields *line) []string
}

var sections = []section{
	{"holders", true, entries(rules.StateRunning, rules.StateKept)},
	{"draining", true, entries(rules.StateDraining)},
	{"claims", true, entries(rules.StateClaimed)},
	{"queue", true, (*player).queue},
	{"evidence", false, (*player).allEvidence},
	{"complete", false, func(p *player, _ *line) []string { return []string{"for " + span(p.last.At.Sub(p.last.EvidenceSince))} }},
	{"releases", false, (*player).releases},
	{"bars", false, (*player).bars},
	{"forced", false, (*player).forced},
	{"missed", false, (*player).missed},
	{"attention", false, func(p *player, _ *line) []string { return p.last.Attn }},
	{"idle", false, (*player).idle},
}

// show prints sections of the stored document: the ones that the line names, or else the ones that are always printed.
// The other words of the line are fields of entries and waiters that are printed too.
func (p *player) show(l *line) (out []string, err error) {
	named := slices.ContainsFunc(sections, func(s section) bool { return l.has(s.name) })
	for _, s := range sections {
		if named && !l.has(s.name) {
			continue
		}
		text := s.text(p, l)
		switch {
		case len(text) > 0 && (named || s.always):
			out = append(out, s.name+": "+strings.Join(shorten(text), "; "))
		case named:
			out = append(out, s.name+": none")
		}
	}
	if len(out) == 0 {
		out = []string{"nothing"}
	}
	return out, l.complete()
}

// entries returns the description of the entries in some states.
func entries(states ...string) func(*player, *line) []string {
	return func(p *player, fields *line) (all []string) {
		for i := range p.last.Entries {
			if e := &p.last.Entries[i]; slices.Contains(states, e.State) {
				all = append(all, p.entry(e, fields))
			}
		}
		return all
	}
}

func (p *player) entry(e *rules.Entry, fields *line) string {
	at := p.last.At
	text := partName(e)
	if e.State == rules.StateKept && e.FirstOrder != e.Order {
		text += fmt.Sprintf(" orders=%d..%d", e.FirstOrder, e.Order)
	} else {
		text += order(e.Order)
	}
	text += " " + p.mode(e.Mode, e.Limit, e.Member)
	if e.Fence > 0 {
		text += " " + p.fencesOf(e)
	}
	text += option("run", e.Run) + option("saga", e.Saga) + option("within", e.Within)
	if e.CutOff {
		text += " cut off"
	}
	if e.Passed {
		text += " passed"
	}
	text += ", " + left(e.ExpiresAt, at)
	leased := e.TTL > 0 && e.Alive(at) && e.State != rules.StateDraining
	if ttl := time.Duration(e.TTL) * time.Millisecond; leased && left(at.Add(ttl), at) != left(e.ExpiresAt, at) {
		text += " of " + span(ttl)
	}
	for _, f := range []struct{ name, value string }{
		{"id", e.ID}, {"owner", e.Owner}, {"host", e.Host}, {"comment", e.Comment}, {"trace", e.Trace},
	} {
		if fields.has(f.name) {
			text += " " + f.name + "=" + name(f.value)
		}
	}
	for _, f := range []struct {
		name string
		at   *time.Time
	}{{"created", e.CreatedAt}, {"queued", e.Since}, {"granted", e.ClaimedAt}, {"renewed", e.RenewedAt}} {
		if fields.has(f.name) {
			text += " " + f.name + " " + ago(f.at, at)
		}
	}
	if fields.has("after") {
		origin := p.origin(e)
		if origin == "" {
			origin = " after nobody"
		}
		text += origin
	}
	return text
}

func (p *player) queue(fields *line) (all []string) {
	at := p.last.At
	for i := range p.last.Waiters {
		w := &p.last.Waiters[i]
		text := name(w.LockID) + " " + name(w.Part) + order(w.Order) + " " + p.mode(w.Mode, w.Limit, w.Member)
		text += option("run", w.Run) + option("saga", w.Saga) + option("within", w.Within)
		if w.Hold != nil {
			text += " hold-only"
		}
		if w.Ahead {
			text += " ahead"
		}
		if w.Priority > 0 {
			text += fmt.Sprintf(" priority=%d", w.Priority)
		}
		if w.Promoted {
			text += " promoted"
		}
		if w.ClaimTTL > 0 {
			text += " claim=" + span(time.Duration(w.ClaimTTL)*time.Millisecond)
		}
		switch {
		case w.Verdict != "":
			text += " withdrawn"
		case !w.ExpiresAt.After(at):
			text += " expired"
		case w.Overdue(at):
			text += " overdue"
		}
		if fields.has("left") {
			text += fmt.Sprintf(", %s, overdue in %s", left(w.ExpiresAt, at), span(w.OverdueAt.Sub(at)))
		}
		if fields.has("queued") {
			text += " queued " + ago(&w.Since, at)
		}
		if fields.has("owner") {
			text += " owner=" + name(w.Owner)
		}
		all = append(all, text)
	}
	return all
}

func (p *player) allEvidence(*line) (all []string) {
	for i := range p.last.Evidence {
		all = append(all, p.evidence(&p.last.Evidence[i]))
	}
	return all
}

func (p *player) releases(*line) (all []string) {
	for _, r := range p.last.Releases {
		all = append(all, name(r.LockID)+option("run", r.Run)+" order="+orderName(r.Order))
	}
	return all
}

// bars describes the bars of each lock ID as the rules find them.
func (p *player) bars(*line) (all []string) {
	var lockIDs []string
	for i := range p.last.Entries {
		for _, b := range p.last.Entries[i].Bars {
			lockIDs = append(lockIDs, b.LockID)
		}
	}
	for _, b := range p.last.Bars {
		lockIDs = append(lockIDs, b.LockID)
	}
	for i, lockID := range lockIDs {
		if slices.Contains(lockIDs[:i], lockID) {
			continue
		}
		for b := range p.last.AllBars(lockID) {
			text := fmt.Sprintf("%s%s%s order=%s", name(lockID), option("run", b.Run), option("saga", b.Saga), orderName(b.Order))
			if !slices.Contains(p.last.Bars, *b) {
				text += " in the hold"
			}
			all = append(all, text)
		}
	}
	return all
}

func (p *player) forced(*line) (all []string) {
	for _, f := range p.last.Forced {
		all = append(all, name(f.LockID)+" "+cause(f.By, f.Reason))
	}
	return all
}

func (p *player) missed(*line) (all []string) {
	for i := range p.last.Missed {
		m := &p.last.Missed[i]
		all = append(all, fmt.Sprintf("%s%s%s fence %s, %s %s, found %s by the release up to order %d", name(m.LockID), option("run", m.Run), order(m.Order),
			p.number(m.Fence), cause(m.By, m.Reason), ago(&m.At, p.last.At), ago(&m.ReleasedAt, p.last.At), m.UpTo))
	}
	return all
}

// idle describes when the document may be removed: after everything that must not outlive it, rounded up to an hour.
func (p *player) idle(*line) []string {
	var last time.Time
	for i := range p.last.Entries {
		if e := &p.last.Entries[i]; e.State != rules.StateClaimed {
			last = rules.Later(last, e.ExpiresAt)
		}
	}
	for i := range p.last.Missed {
		last = rules.Later(last, p.last.Missed[i].ReleasedAt.Add(rules.Retention))
	}
	switch d := p.last.IdleAt.Sub(last); {
	case !last.Before(rules.Never) && d >= 0:
		return []string{"never"}
	case last.IsZero() || d <= 0 || d > rules.IdleGrain:
		return []string{"in " + span(p.last.IdleAt.Sub(p.last.At))}
	}
	return []string{"after " + span(last.Sub(p.last.At))}
}
