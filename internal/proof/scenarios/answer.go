package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// answer describes the answer to an operation.
type answer struct {
	*player
	d     *rules.Document
	r     *rules.Result
	words []string
}

func (a *answer) add(format string, args ...any) { a.words = append(a.words, fmt.Sprintf(format, args...)) }

// list adds the names of entries, unless there are none.
func (a *answer) list(what string, entries []rules.Entry, name func(*rules.Entry) string) {
	var names []string
	counts := map[string]int{}
	for i := range entries {
		text := name(&entries[i])
		if counts[text]++; counts[text] == 1 {
			names = append(names, text)
		}
	}
	for i, text := range names {
		if n := counts[text]; n > 1 {
			names[i] = fmt.Sprintf("%s (%d entries)", text, n)
		}
	}
	if len(names) > 0 {
		a.add("%s %s", what, strings.Join(shorten(names), " and "))
	}
}

func (a *answer) describe(op rules.Op) {
	switch op := op.(type) {
	case rules.Acquire:
		a.acquire(&op)
	case rules.Renew:
		a.outcome("renewed")
		if e := a.d.Part(op.LockID, op.Part, op.Order); a.r.Outcome == rules.Granted {
			a.add("%s", left(e.ExpiresAt, a.d.At))
			if k := a.d.Kept(op.LockID); k != nil {
				a.add("the hold %s", left(k.ExpiresAt, a.d.At))
			}
		}
	case rules.Verify:
		a.outcome("held")
		if k := a.d.Kept(op.LockID); a.r.Outcome == rules.Granted {
			a.add("%s", left(k.ExpiresAt, a.d.At))
		}
	case rules.Withdraw:
		a.outcome("withdrawn")
	case rules.Raise:
		a.outcome("raised")
	default:
		a.outcome("done")
	}
	drains := func(e rules.Entry) bool {
		return slices.ContainsFunc(a.d.Entries, func(o rules.Entry) bool {
			return o.State == rules.StateDraining && o.LockID == e.LockID && o.Part == e.Part && o.Order == e.Order && e.State == rules.StateRunning
		})
	}
	a.list("drains", filter(a.r.Released(), drains), partName)
	a.list("ends", filter(a.r.Released(), func(e rules.Entry) bool { return !drains(e) }), partName)
	whole := filter(a.r.HoldsEnded(a.d), func(e rules.Entry) bool { return e.State == rules.StateKept })
	a.list("nothing more is kept by", whole, func(e *rules.Entry) string { return name(e.LockID) })
	a.list("withdraws", a.r.Withdrawn(a.d.At), a.withdrawn)
	a.list("evicts", a.r.Expired, partName)
	a.list("grants the hold of", a.r.Holds, func(e *rules.Entry) string { return e.LockID + " " + e.Part + a.origin(e) })
	if a.r.Length > 0 && a.r.Outcome != rules.Queued {
		a.add("%d waiting", a.r.Length)
	}
}

// outcome adds the outcome, with a word of the operation for Granted.
func (a *answer) outcome(granted string) {
	switch a.r.Outcome {
	case rules.Granted:
		a.add("%s", granted)
	case rules.Again:
		a.add("granted before")
	case rules.OtherRun:
		a.add("refused, run %s holds or waits", a.r.Note)
	case rules.Deadlock:
		a.add("deadlock: %s", a.r.Note)
	case rules.Superseded:
		a.add("superseded")
	default:
		a.add("%s", string(a.r.Outcome))
	}
}

func (a *answer) acquire(op *rules.Acquire) {
	a.outcome("granted")
	switch a.r.Outcome {
	case rules.Granted, rules.Joined, rules.Again:
		e, ttl := a.d.Part(op.LockID, op.Part, op.Order), op.TTL
		if op.HoldOnly {
			e, ttl = a.d.Kept(op.LockID), op.HoldTTL
		}
		a.add("%s", a.fencesOf(e))
		if rest := left(e.ExpiresAt, a.d.At); ttl == 0 || rest != left(a.d.At.Add(time.Duration(ttl)*time.Millisecond), a.d.At) {
			a.add("%s", rest)
		}
	case rules.Queued:
		if a.r.Length < a.r.Position {
			a.add("position %d", a.r.Position) // and the same write has granted it a claim
		} else {
			a.add("position %d of %d", a.r.Position, a.r.Length)
		}
	case rules.Busy:
		var names []string
		for i := range a.d.Entries {
			if e := &a.d.Entries[i]; e.LockID != op.LockID && e.Alive(a.d.At) && !slices.Contains(names, e.LockID) {
				names = append(names, e.LockID)
			}
		}
		if len(names) > 0 {
			a.add("held by %s", strings.Join(shorten(names), " and "))
		}
	case rules.Lost:
		if e := a.d.LossEvidence(op.LockID, op.Label, op.LostSince); e != nil {
			a.add("%s", a.cause(e))
		}
	case rules.Superseded:
		by, _ := a.d.SupersededBy(op.Request())
		switch {
		case by == rules.Supersession{}:
			a.add("by another call")
		case by.Reason != "":
			a.add("%s, up to order %s", by.Reason, orderName(by.Order))
		case by.Released:
			a.add("released up to order %s", orderName(by.Order))
		default:
			a.add("by order %s", orderName(by.Order))
		}
	}
}

// fencesOf returns the fence of an entry, with its first and least ones if they differ.
func (p *player) fencesOf(e *rules.Entry) string {
	text := "fence " + p.number(e.Fence)
	switch first, least := " (first "+p.number(e.FirstFence), ", least "+p.number(e.LeastFence); {
	case e.LeastFence != e.FirstFence:
		return text + first + least + ")"
	case e.FirstFence != e.Fence:
		return text + first + ")"
	}
	return text
}

// number returns the number of a fence.
func (p *player) number(fence int64) string {
	if i := slices.Index(p.fences, fence); i >= 0 {
		return fmt.Sprint(i + 1)
	}
	return "unknown"
}

// partName names an entry by its lock ID and its part.
func partName(e *rules.Entry) string {
	if e.State == rules.StateKept {
		return name(e.LockID) + " kept"
	}
	return name(e.LockID) + " " + name(e.Part)
}

// withdrawn describes a waiter or a claim that was ended.
func (a *answer) withdrawn(e *rules.Entry) string {
	kind, times := "the waiter ", "queued "+ago(e.Since, a.d.At)
	if e.State == rules.StateClaimed {
		kind, times = "the claim of ", times+", granted "+ago(e.ClaimedAt, a.d.At)+a.origin(e)
	}
	text := kind + partName(e) + order(e.Order) + " " + mode(e.Mode, e.Limit)
	if e.Owner != "" {
		text += " owner=" + name(e.Owner)
	}
	return text + " (" + times + ")"
}

// origin describes the hold whose end made a grant possible.
func (p *player) origin(e *rules.Entry) string {
	o := e.Predecessor
	if o == nil {
		return ""
	}
	text := fmt.Sprintf(" after %s fence %s", name(o.LockID), p.number(o.Fence))
	if o.Owner != "" {
		text += " owner=" + name(o.Owner)
	}
	if o.Trace != "trace" {
		text += " trace=" + name(o.Trace)
	}
	return text
}

// evidence describes a record of evidence.
func (p *player) evidence(e *rules.Evidence) string {
	text := fmt.Sprintf("#%d %s%s", e.Number, name(e.LockID), option("run", e.Label))
	if e.To != "" {
		return fmt.Sprintf("%s taken over by run %s", text, e.To)
	}
	return fmt.Sprintf("%s%s fence %s %s %s", text, order(e.Order), p.number(e.Fence), p.cause(e), ago(&e.At, p.last.At))
}

// cause returns why a hold was lost.
func (p *player) cause(e *rules.Evidence) string {
	if e.Reason != "" {
		return fmt.Sprintf("released by force: %s", e.Reason)
	}
	return "evicted by " + name(e.By)
}

// sections are the parts of a document that "show" prints. Without names it prints the first ones that have any content.
var sections = []struct {
	name   string
	always bool
	text   func(p *player, extra *line) []string
}{
	{"holders", true, entries(rules.StateRunning, rules.StateKept)},
	{"draining", true, entries(rules.StateDraining)},
	{"claims", true, entries(rules.StateClaimed)},
	{"queue", true, (*player).queue},
	{"evidence", false, func(p *player, _ *line) (all []string) {
		for i := range p.last.Evidence {
			all = append(all, p.evidence(&p.last.Evidence[i]))
		}
		return all
	}},
	{"complete", false, func(p *player, _ *line) []string { return []string{"for " + span(p.last.At.Sub(p.last.EvidenceSince))} }},
	{"releases", false, func(p *player, _ *line) (all []string) {
		for _, r := range p.last.Releases {
			all = append(all, name(r.LockID)+option("run", r.Label)+fmt.Sprintf(" order=%d", r.Order))
		}
		return all
	}},
	{"bars", false, (*player).bars},
	{"forced", false, func(p *player, _ *line) (all []string) {
		for i := range p.last.Forced {
			all = append(all, name(p.last.Forced[i].LockID)+" "+p.cause(&p.last.Forced[i]))
		}
		return all
	}},
	{"missed", false, (*player).missed},
	{"attention", false, func(p *player, _ *line) []string { return p.last.Attn }},
	{"idle", false, (*player).idle},
}

// show prints sections of the stored document, each in one line.
func (p *player) show(l *line) (out []string, err error) {
	named := slices.ContainsFunc(sections, func(s struct {
		name   string
		always bool
		text   func(p *player, extra *line) []string
	}) bool {
		return l.has(s.name)
	})
	for _, s := range sections {
		text := s.text(p, l)
		switch {
		case named && !l.has(s.name), !named && (!s.always || len(text) == 0):
		case len(text) == 0:
			out = append(out, s.name+": none")
		default:
			out = append(out, s.name+": "+strings.Join(shorten(text), "; "))
		}
	}
	if len(out) == 0 {
		out = []string{"nothing"}
	}
	return out, l.complete()
}

// entries returns the description of the entries in some states.
func entries(states ...string) func(*player, *line) []string {
	return func(p *player, extra *line) (all []string) {
		for i := range p.last.Entries {
			if e := &p.last.Entries[i]; slices.Contains(states, e.State) {
				all = append(all, p.entry(e, extra))
			}
		}
		return all
	}
}

func (p *player) entry(e *rules.Entry, extra *line) string {
	at := p.last.At
	text := partName(e)
	if e.State == rules.StateKept && e.FirstOrder != e.Order {
		text += fmt.Sprintf(" orders=%d..%d", e.FirstOrder, e.Order)
	} else {
		text += order(e.Order)
	}
	text += " " + mode(e.Mode, e.Limit)
	if e.Fence > 0 {
		text += " " + p.fencesOf(e)
	}
	text += option("run", e.Label) + option("saga", e.Saga) + option("within", e.Within)
	if e.CutOff {
		text += " cut off"
	}
	if e.Passed {
		text += " passed"
	}
	text += ", " + left(e.ExpiresAt, at)
	if ttl := time.Duration(e.TTL) * time.Millisecond; ttl > 0 && e.Alive(at) && e.State != rules.StateDraining && left(at.Add(ttl), at) != left(e.ExpiresAt, at) {
		text += " of " + span(ttl)
	}
	for _, f := range []struct{ name, value string }{
		{"id", e.ID}, {"owner", e.Owner}, {"host", e.Host}, {"comment", e.Comment}, {"trace", e.Trace},
	} {
		if extra.has(f.name) {
			text += " " + f.name + "=" + name(f.value)
		}
	}
	for _, f := range []struct {
		name string
		at   *time.Time
	}{{"created", e.CreatedAt}, {"queued", e.Since}, {"granted", e.ClaimedAt}, {"renewed", e.RenewedAt}} {
		if extra.has(f.name) {
			text += " " + f.name + " " + ago(f.at, at)
		}
	}
	if extra.has("after") {
		origin := p.origin(e)
		if origin == "" {
			origin = " after nobody"
		}
		text += origin
	}
	return text
}

func (p *player) queue(extra *line) (all []string) {
	at := p.last.At
	for i := range p.last.Waiters {
		w := &p.last.Waiters[i]
		text := name(w.LockID) + " " + name(w.Part) + order(w.Order) + " " + mode(w.Mode, w.Limit)
		text += option("run", w.Label) + option("saga", w.Saga) + option("within", w.Within)
		if w.Hold != nil {
			text += " hold-only"
		}
		if w.Ahead {
			text += " ahead"
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
		if extra.has("left") {
			text += fmt.Sprintf(", %s, overdue in %s", left(w.ExpiresAt, at), span(w.OverdueAt.Sub(at)))
		}
		if extra.has("queued") {
			text += " queued " + ago(&w.Since, at)
		}
		if extra.has("owner") {
			text += " owner=" + name(w.Owner)
		}
		all = append(all, text)
	}
	return all
}

func (p *player) bars(*line) (all []string) {
	text := func(b *rules.Bar) string {
		return fmt.Sprintf("%s%s%s order=%d", name(b.LockID), option("run", b.Label), option("saga", b.Saga), b.Order)
	}
	for i := range p.last.Entries {
		for n := range p.last.Entries[i].Bars {
			all = append(all, text(&p.last.Entries[i].Bars[n])+" in the hold")
		}
	}
	for i := range p.last.Bars {
		all = append(all, text(&p.last.Bars[i]))
	}
	return all
}

func (p *player) missed(*line) (all []string) {
	for i := range p.last.Missed {
		m := &p.last.Missed[i]
		cause := p.cause(&rules.Evidence{By: m.By, Reason: m.Reason})
		all = append(all, fmt.Sprintf("%s%s%s fence %s %s %s, found %s by the release up to order %d", name(m.LockID), option("run", m.Label), order(m.Order),
			p.number(m.Fence), cause, ago(&m.At, p.last.At), ago(&m.ReleasedAt, p.last.At), m.UpTo))
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
	case last.IsZero() || d < 0 || d > rules.IdleGrain:
		return []string{"in " + span(p.last.IdleAt.Sub(p.last.At))}
	}
	return []string{"after " + span(last.Sub(p.last.At))}
}

// shorten returns the first and the last texts of a long list.
func shorten(all []string) []string {
	const most, each = 10, 2
	if len(all) <= most {
		return all
	}
	return slices.Concat(all[:each], []string{fmt.Sprintf("%d more", len(all)-2*each)}, all[len(all)-each:])
}

// name returns a text as it is, or quoted if it is not a plain word.
func name(text string) string {
	if text == "" {
		return "-"
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"\$={}`, r) }) {
		return strconv.Quote(text)
	}
	return text
}

func filter(all []rules.Entry, which func(rules.Entry) bool) []rules.Entry {
	return slices.DeleteFunc(all, func(e rules.Entry) bool { return !which(e) })
}

func option(key, value string) string {
	if value == "" {
		return ""
	}
	return " " + key + "=" + name(value)
}

// order returns an order, unless it is 1.
func order(n int64) string {
	if n == 1 {
		return ""
	}
	return " order=" + orderName(n)
}

// orderName returns an order, or the name of the one that plain requests have.
func orderName(n int64) string {
	if n == rules.LastPlain {
		return "plain"
	}
	return strconv.FormatInt(n, 10)
}

func mode(m string, limit int64) string {
	text := map[string]string{rules.Exclusive: "exclusive", rules.Shared: "shared"}[m]
	if limit > 0 {
		text += fmt.Sprintf(" limit=%d", limit)
	}
	return text
}

// left describes the time until an end.
func left(end, now time.Time) string {
	switch d := end.Sub(now); {
	case !end.Before(rules.Never):
		return "without an end"
	case d <= 0:
		return "expired"
	default:
		return span(d) + " left"
	}
}

func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return "never"
	}
	if d := now.Sub(*t); d > time.Minute/2 {
		return span(d) + " ago"
	}
	return "just now"
}

// span rounds a time, because the clock of a database runs while a scenario is played.
func span(d time.Duration) string {
	if d < time.Minute-time.Second {
		return d.Round(15 * time.Second).String()
	}
	d = d.Round(time.Minute)
	if d%time.Hour == 0 && d > 2*time.Hour {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dm", d/time.Minute)
}
