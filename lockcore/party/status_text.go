package party

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// String says who it is and for how long it is in the way. It names what a forced [Release] asks
// for: the lock ID and the first fence.
func (h Holder) String() string {
	part := ""
	if h.Part != "" {
		part = fmt.Sprintf("part %q", h.Part)
	}
	switch h.State {
	case StateClaimed:
		return "granted to " + h.who("at", part) + ", " + h.until("lapsed %s", "no end", "lapses in %s unless confirmed")
	case StateDraining:
		return h.until("drained %s", "draining until it leaves", "draining for another %s") + ": " + h.who("since", part) + ", was cut off"
	}
	return "held by " + h.who("since", part) + ", " + h.until("expired %s", "no end", "for another %s unless renewed")
}

func (h Holder) until(over, endless, left string) string {
	switch {
	case h.ExpiresIn <= 0:
		return fmt.Sprintf(over, ago(-h.ExpiresIn))
	case h.ExpiresIn == Forever:
		return endless
	}
	return fmt.Sprintf(left, roughly(h.ExpiresIn))
}

// who names a party, and says how it holds or asks. The preposition stands before the time at which
// that began.
func (h Holder) who(preposition string, facts ...string) string {
	s := fmt.Sprintf("%q", h.LockID)
	if h.Owner != "" && h.Owner != h.LockID {
		s += fmt.Sprintf(" of %q", h.Owner)
	}
	if h.Host != "" {
		s += " on " + h.Host
	}
	mode := h.Mode.String()
	if h.Limit > 0 {
		mode += fmt.Sprintf(" with limit %d", h.Limit)
	}
	facts = slices.DeleteFunc(append([]string{mode}, append(facts, h.fences())...), func(fact string) bool { return fact == "" })
	s += " (" + strings.Join(facts, ", ") + ")"
	if !h.Since.IsZero() {
		s += " " + preposition + " " + h.Since.UTC().Format(time.RFC3339)
	}
	return s
}

// fences are "" for a claim, which has none yet.
func (h Holder) fences() string {
	switch {
	case h.FirstFence != 0 && h.FirstFence != h.Fence:
		return fmt.Sprintf("first fence %d, latest %d", h.FirstFence, h.Fence)
	case h.FirstFence != 0:
		return fmt.Sprintf("first fence %d", h.FirstFence)
	case h.Fence != 0:
		return fmt.Sprintf("fence %d", h.Fence)
	}
	return ""
}

// String says the resource, who holds it or waits for it, and until when. It names what ends that:
// of a hold the lock ID and the first fence; of a waiter the lock ID, the part and the order.
func (s Status) String() string {
	if s.State == StateWaiting {
		place := s.until("its place ended %s", "", "its place ends in %s unless it asks again")
		if s.Overdue && s.ExpiresIn > 0 {
			place = "overdue: passed over until it asks again, its place ends in " + roughly(s.ExpiresIn)
		}
		who := s.who("since", fmt.Sprintf("part %q", s.Part), "order "+s.Order.String())
		return fmt.Sprintf("%q: waiting at place %d for %s: %s, %s", s.Resource, s.Position, roughly(s.Silent), who, place)
	}
	text := fmt.Sprintf("%q: %s", s.Resource, s.Holder)
	if s.State == StateHolding && s.Silent > 0 {
		text += "; heard of " + ago(s.Silent)
	}
	if s.Comment != "" {
		text += fmt.Sprintf("; comment %q", s.Comment)
	}
	return text
}

func ago(d time.Duration) string {
	if d = d.Round(10 * time.Millisecond); d <= 0 {
		return "just now"
	}
	return roughly(d) + " ago"
}

// roughly is a duration in at most two units, such as "4m40s".
func roughly(d time.Duration) string {
	grain := 10 * time.Millisecond
	switch {
	case d >= 10*time.Hour:
		grain = time.Hour
	case d >= 10*time.Minute:
		grain = time.Minute
	case d >= time.Second:
		grain = time.Second
	}
	text := d.Round(grain).String()
	for _, none := range []string{"0s", "0m"} {
		if before, has := strings.CutSuffix(text, none); has && !strings.ContainsAny(before[max(0, len(before)-1):], "0123456789") {
			text = before
		}
	}
	return text
}
