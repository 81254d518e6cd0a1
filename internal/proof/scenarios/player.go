package scenarios

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// player plays the operations of a scenario.
type player struct {
	h Harness
	// resource is base, with a suffix after "new resource".
	base, resource string
	// last is the document as it was stored after the latest operation, or empty if there is none.
	last *rules.Document
	// fences are the fences so far, in ascending order. Transcripts number them from 1.
	fences []int64
	// disorder is set if a fence was not greater than all before, or is greater than that of its document.
	disorder bool
}

// play plays a line, and returns the lines of its answer.
func (p *player) play(text string) ([]string, error) {
	if p.last == nil {
		p.last = &rules.Document{}
	}
	if loop, ok := strings.CutPrefix(text, "for i in "); ok {
		return p.loop(loop)
	}
	if suffix, ok := strings.CutPrefix(text, "new resource"); ok {
		return nil, p.begin(strings.TrimSpace(suffix))
	}
	l, err := parseLine(text)
	if err != nil {
		return nil, err
	}
	var answer string
	switch l.verb {
	case "pass":
		return nil, p.pass(l.args[0])
	case "limit", "pool":
		if err := p.setPolicy(l); err != nil {
			return nil, err
		}
		return nil, l.complete()
	case "show":
		return p.show(l)
	case "evidence":
		answer = p.lossEvidence(l)
	case "was-lost":
		answer = p.wasLost(l)
	default:
		op := p.op(l)
		if op == nil {
			return nil, fmt.Errorf("there is no operation %q", l.verb)
		}
		if err := l.complete(); err != nil {
			return nil, err
		}
		answer, err = p.apply(op)
		return []string{answer}, err
	}
	return []string{answer}, l.complete()
}

// begin continues on another resource, which has no document yet. Its name may have a quoted suffix.
func (p *player) begin(suffix string) (err error) {
	if suffix != "" {
		suffix, err = strconv.Unquote(suffix)
	}
	p.base += "+"
	p.resource, p.last, p.fences = p.base+suffix, &rules.Document{}, nil
	return err
}

// pass lets time pass.
func (p *player) pass(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if err := p.h.Travel(p.base, p.resource, d); err != nil {
		return err
	}
	return p.load()
}

// setPolicy sets the policy for a name, or with a star for a prefix, both after the name with which the scenario began, or
// removes it.
func (p *player) setPolicy(l *line) error {
	name, prefix := strings.CutSuffix(l.args[0], "*")
	change := rules.PolicyChange{PolicyID: rules.PolicyID{Name: p.base + name, Prefix: prefix}, By: "ops", Reason: "a scenario"}
	switch {
	case l.args[1] == "none":
	case l.verb == "pool":
		change.To = &rules.Policy{}
		for _, member := range strings.Split(l.args[1], ",") {
			member, out := strings.CutSuffix(member, "!")
			change.To.Members = append(change.To.Members, rules.Member{Name: p.base + "/" + member, Out: out})
		}
	default:
		n, err := strconv.ParseInt(l.args[1], 10, 64)
		if err != nil {
			return err
		}
		change.To = &rules.Policy{Limit: n, Unreadable: n == 0}
	}
	if err := p.h.SetPolicy(change, l.span("for", 0)); err != nil {
		return err
	}
	return p.load()
}

// lossEvidence describes the latest evidence of a loss, or of a loss that counts.
func (p *player) lossEvidence(l *line) string {
	e := p.last.LossEvidence(l.args[0], l.text("run", ""), p.since(l))
	if l.has("that-counts") {
		e = p.last.Lost(l.args[0], l.text("run", ""), p.since(l))
	}
	if e == nil {
		return "none"
	}
	return p.evidence(e)
}

// wasLost answers whether a missing hold must be considered lost. Without held-for, only evidence counts.
func (p *player) wasLost(l *line) string {
	var began time.Time
	if l.has("held-for") {
		began = p.last.At.Add(-l.span("held-for", 0))
	}
	if p.last.LostBefore(l.args[0], p.fence(l), began) {
		return "yes"
	}
	return "no"
}

// loop plays operations for each number of a range, and counts the answers by their first words.
func (p *player) loop(text string) (out []string, err error) {
	head, body, _ := strings.Cut(text, ": ")
	var from, to int
	if _, err := fmt.Sscanf(head, "%d..%d", &from, &to); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i := from; i <= to; i++ {
		for op := range strings.SplitSeq(body, "; ") {
			got, err := p.play(strings.ReplaceAll(op, "{i}", strconv.Itoa(i)))
			if err != nil {
				return nil, err
			}
			verb, _, _ := strings.Cut(op, " ")
			for _, answer := range got {
				outcome, _, _ := strings.Cut(answer, ",")
				key := verb + ": " + outcome
				if counts[key]++; counts[key] == 1 {
					out = append(out, key)
				}
			}
		}
	}
	for i, key := range out {
		out[i] = fmt.Sprintf("%s, %d times", key, counts[key])
	}
	return out, nil
}

// load reads the document, and numbers its fences.
func (p *player) load() error {
	d, err := p.h.Stored(p.resource)
	if err != nil {
		return err
	}
	if d == nil {
		d = &rules.Document{}
	} else if d.ID != p.resource {
		return fmt.Errorf("the document of %q is %q", p.resource, d.ID)
	}
	p.last = d
	return nil
}

// numberFences takes up the new fences of a document.
func (p *player) numberFences(d *rules.Document) {
	all := []int64{d.Fence}
	for i := range d.Entries {
		all = append(all, d.Entries[i].Fence, d.Entries[i].FirstFence, d.Entries[i].LeastFence)
	}
	if d.Fence < slices.Max(all) {
		p.disorder = true
	}
	slices.Sort(all)
	for _, fence := range all {
		switch n := len(p.fences); {
		case fence == 0 || slices.Contains(p.fences, fence):
		case n > 0 && fence < p.fences[n-1]:
			p.disorder = true
		default:
			p.fences = append(p.fences, fence)
		}
	}
}

// apply applies an operation, and returns its answer. The answer ends with "no change" if the write left the document as it
// was, and with "nothing written" if there was none.
func (p *player) apply(op rules.Op) (string, error) {
	before, known := p.last, len(p.fences)
	d, result, err := p.h.Apply(op)
	if err != nil {
		return "", err
	}
	p.numberFences(d)
	if err := p.load(); err != nil {
		return "", err
	}
	a := &answer{player: p, d: d, r: &result}
	a.describe(op)
	for _, fence := range p.fences[known:] {
		if fence < d.At.UnixMilli() {
			a.add("a fence below the time")
		}
	}
	if p.disorder {
		a.add("fences out of order")
	}
	switch {
	case result.ReadOnly:
		a.add("nothing written")
	case same(before, p.last):
		a.add("no change")
	}
	return strings.Join(a.words, ", "), nil
}

// same reports whether two documents differ only in version, in what is derived, and in times by less than half a minute,
// since the clock of a database runs while a scenario is played.
func same(a, b *rules.Document) bool {
	a, b = a.Clone(), b.Clone()
	for _, d := range []*rules.Document{a, b} {
		d.ID, d.Version, d.At, d.IdleAt, d.Attn = "", rules.Version{}, time.Time{}, time.Time{}, nil
		d.Releases, d.Bars = append([]rules.ReleaseRecord{}, d.Releases...), append([]rules.Bar{}, d.Bars...)
		d.Forced, d.Missed = append([]rules.Evidence{}, d.Forced...), append([]rules.Missed{}, d.Missed...)
		for i := range d.Entries {
			d.Entries[i].Bars = append([]rules.Bar{}, d.Entries[i].Bars...)
		}
	}
	before, after := times(a), times(b)
	for i := 0; i < len(before) && len(before) == len(after); i++ {
		if before[i] != nil && after[i] != nil && after[i].Sub(*before[i]).Abs() < time.Minute/2 {
			*after[i] = *before[i]
		}
	}
	return reflect.DeepEqual(a, b)
}
