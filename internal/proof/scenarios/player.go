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
	// disorder is set if a fence was not greater than all before.
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
	l, err := parseLine(text)
	if err != nil {
		return nil, err
	}
	op := p.op(l)
	switch {
	case op != nil:
		if err := l.complete(); err != nil {
			return nil, err
		}
		answer, err := p.apply(op)
		return []string{answer}, err
	case l.verb == "pass":
		d, err := time.ParseDuration(l.args[0])
		if err == nil {
			err = p.h.Travel(p.resource, d)
		}
		if err == nil {
			err = p.load()
		}
		return nil, err
	case strings.HasPrefix(text, "new resource"):
		p.base += "+"
		suffix := strings.TrimSpace(strings.TrimPrefix(text, "new resource"))
		if suffix != "" {
			suffix, err = strconv.Unquote(suffix)
		}
		p.resource, p.last, p.fences = p.base+suffix, &rules.Document{}, nil
		return nil, err
	case l.verb == "evidence":
		e := p.last.LossEvidence(l.args[0], l.text("run", ""), p.since(l))
		if l.has("that-counts") {
			e = p.last.Lost(l.args[0], l.text("run", ""), p.since(l))
		}
		if e == nil {
			return []string{"none"}, l.complete()
		}
		return []string{p.evidence(e)}, l.complete()
	case l.verb == "was-lost":
		var began time.Time
		if l.has("held-for") {
			began = p.last.At.Add(-l.span("held-for", 0))
		}
		answer := "no"
		if p.last.LostBefore(l.args[0], p.fence(l), began) {
			answer = "yes"
		}
		return []string{answer}, l.complete()
	case l.verb == "show":
		return p.show(l)
	}
	return nil, fmt.Errorf("there is no operation %q", l.verb)
}

// loop plays operations for each number of a range, and counts the answers by their first words.
func (p *player) loop(text string) ([]string, error) {
	head, body, _ := strings.Cut(text, ": ")
	var from, to int
	if _, err := fmt.Sscanf(head, "%d..%d", &from, &to); err != nil {
		return nil, err
	}
	var verbs []string
	counts := map[string]int{}
	for i := from; i <= to; i++ {
		for _, op := range strings.Split(body, "; ") {
			got, err := p.play(strings.ReplaceAll(op, "{i}", fmt.Sprint(i)))
			if err != nil {
				return nil, err
			}
			verb, _, _ := strings.Cut(op, " ")
			for _, answer := range got {
				word, _, _ := strings.Cut(answer, ",")
				key := verb + ": " + word
				if !slices.Contains(verbs, key) {
					verbs = append(verbs, key)
				}
				counts[key]++
			}
		}
	}
	for i, key := range verbs {
		verbs[i] = fmt.Sprintf("%s, %d times", key, counts[key])
	}
	return verbs, nil
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

// apply applies an operation, and returns its answer.
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
		a.add("a fence below an earlier one")
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
