package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Violation is a broken invariant, and what led to it.
type Violation struct {
	Seed uint64
	// Kind is a short name of what was broken, such as "I1".
	Kind string
	// Text says how.
	Text string
	// At is when, in virtual time since the beginning.
	At time.Duration
	// History is who did what around it, one line each.
	History []string
}

// String is what a failing seed prints.
func (v *Violation) String() string {
	return fmt.Sprintf("seed %d: %s after %d ms: %s\n  %s\nrepeat it: make simulate FROM=%d SEEDS=1",
		v.Seed, v.Kind, v.At.Milliseconds(), v.Text, strings.Join(v.History, "\n  "), v.Seed)
}

// history is what happened.
type history struct{ lines []line }

// line is one event: when, who, and which lock ID or resource it is about.
type line struct {
	at         time.Duration
	who, about string
	text       string
}

const (
	// historyWithin and historyMost bound what is printed.
	historyWithin = 30 * time.Second
	historyMost   = 60
)

// note takes down an event.
func (w *world) note(who, about, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted(who, about, format, args...)
}

// noted is note, with the mutex held.
func (w *world) noted(who, about, format string, args ...any) {
	if w.result == nil {
		w.lines = append(w.lines, line{w.since(), who, about, fmt.Sprintf(format, args...)})
	}
}

// violate notes the first violation, and ends the play.
func (w *world) violate(kind, who, about, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken(kind, about, "("+who+") "+format, args...)
}

// broken is violate, with the mutex held.
func (w *world) broken(kind, about, format string, args ...any) {
	if w.isOver() {
		return
	}
	v := &Violation{Seed: w.seed, Kind: kind, Text: fmt.Sprintf(format, args...), At: w.since()}
	v.History = w.around(v.At, v.Text, about)
	w.result = v
	w.stopped.Do(func() { close(w.stop) })
}

// around picks the lines that have to do with a violation: of the resources, lock IDs and processes that its text names.
func (w *world) around(at time.Duration, text, about string) []string {
	mentions := func(name string) bool {
		return name != "" && slices.Contains(strings.FieldsFunc(text+" "+about, separates), name)
	}
	var out []string
	for _, l := range slices.Backward(w.lines) {
		if at-l.at > historyWithin || len(out) == historyMost {
			break
		}
		related := mentions(l.who) || mentions(l.about)
		for _, word := range strings.FieldsFunc(l.text, separates) {
			related = related || (len(word) > 1 && slices.Contains(w.plan.resources, word) && mentions(word))
		}
		if related {
			out = append(out, fmt.Sprintf("%6d ms  %-12s %s", l.at.Milliseconds(), l.who, l.text))
		}
	}
	slices.Reverse(out)
	for _, r := range w.plan.resources {
		if mentions(r) {
			out = append(out, standsOn(w.db.Document(r))...)
		}
	}
	return out
}

// standsOn lists what a document has, with what is left of it.
func standsOn(d rules.Document) []string {
	var out []string
	left := func(t time.Time) string {
		if !t.Before(rules.Never) {
			return "no end"
		}
		return fmt.Sprintf("%d ms left", time.Until(t).Milliseconds())
	}
	for _, e := range d.Entries {
		out = append(out, fmt.Sprintf("then %s: %s %s %s/%d fence %d, %s", d.ID, e.State, e.Mode, e.LockID, e.Order, e.Fence, left(e.ExpiresAt)))
	}
	for i, q := range d.Waiters {
		out = append(out, fmt.Sprintf("then %s: waits at %d %s %s/%d since %d ms ago, limit %d, %s", d.ID, i+1, q.Mode, q.LockID, q.Order,
			time.Since(q.Since).Milliseconds(), q.Limit, left(q.ExpiresAt)))
	}
	return out
}

func separates(r rune) bool { return strings.ContainsRune(" ,:;()[]\"'", r) }
