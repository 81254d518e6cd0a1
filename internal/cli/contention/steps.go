package contention

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// makeSteps puts under each hold the steps that entered it, from their acquires until their leaves.
func (a *analysis) makeSteps() {
	left := map[request]int64{}
	leaves := a.records[kindLeave]
	for i := range leaves {
		r := &leaves[i]
		if at, ok := left[r.request()]; !ok || r.start < at {
			left[r.request()] = r.start
		}
	}
	acquires := a.records[kindAcquire]
	for i := range acquires {
		r := &acquires[i]
		fence := a.holdFence(r)
		j, ok := a.byKey[r.key(fence)]
		if fence == 0 || !ok {
			continue
		}
		h := &a.holds[j]
		s := Step{
			Part: a.symbols.text(r.texts[textPart]), Order: a.symbols.text(r.texts[textOrder]),
			Start: timeOf(r.end), Host: a.symbols.text(r.texts[textHost]),
		}
		s.Name = stepName(s.Part)
		h.Run = cmp.Or(h.Run, runOf(h.LockID, s.Part))
		s.Trace, s.Span = hexIDs(r.trace, r.id)
		if at, ok := left[r.request()]; ok {
			s.End = timeOf(max(at, r.end))
			if h.Outcome == OutcomeOpen && at > h.to {
				h.to, h.End = at, s.End
			}
		}
		h.Steps = append(h.Steps, s)
	}
	for i := range a.holds {
		h := &a.holds[i]
		h.arrangeSteps()
		h.WorkflowType = a.typeOf(h.Run, h.Workflow)
	}
}

// arrangeSteps orders them, drops those that an acquire told again, and fits them into the hold.
func (h *hold) arrangeSteps() {
	if len(h.Steps) == 0 {
		return
	}
	slices.SortFunc(h.Steps, func(x, y Step) int {
		return cmp.Or(cmp.Compare(x.Part, y.Part), compareOrders(x.Order, y.Order), x.Start.Compare(y.Start), cmp.Compare(x.Span, y.Span))
	})
	h.Steps = slices.CompactFunc(h.Steps, func(x, y Step) bool { return x.Part == y.Part && x.Order == y.Order })
	for i := range h.Steps {
		if s := &h.Steps[i]; s.End.IsZero() {
			s.EndUnseen = true
			if i+1 < len(h.Steps) && h.Steps[i+1].Part == s.Part { // an attempt that died, and the next one
				s.End = latest(s.Start, h.Steps[i+1].Start)
			}
		}
	}
	for i := range h.Steps {
		h.fit(&h.Steps[i])
	}
	h.findDeath()
	slices.SortStableFunc(h.Steps, func(x, y Step) int { return x.Start.Compare(y.Start) })
	h.Host = cmp.Or(h.Host, h.Steps[len(h.Steps)-1].Host)
}

// compareOrders compares two that are "schedule.attempt"; others come as text has them.
func compareOrders(x, y string) int {
	scheduleX, attemptX, _ := strings.Cut(x, ".")
	scheduleY, attemptY, _ := strings.Cut(y, ".")
	return cmp.Or(cmp.Compare(integer(scheduleX), integer(scheduleY)), cmp.Compare(integer(attemptX), integer(attemptY)), cmp.Compare(x, y))
}

func latest(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// fit moves a step into the hold: its process's clock may differ from the database's. Its length is kept as far as it fits. One of which no
// end is known ran no longer than the hold was promised, so far as anybody knows.
func (h *hold) fit(s *Step) {
	start := s.Start.UnixNano()
	end := h.to
	if !h.ExpiredAt.IsZero() {
		end = min(end, h.ExpiredAt.UnixNano())
	}
	if !s.End.IsZero() {
		length := min(s.End.UnixNano()-start, h.length())
		start = min(max(start, h.from), h.to-length)
		end = start + length
	} else {
		start = min(max(start, h.from), h.to)
		end = max(start, end)
	}
	s.Start, s.End = timeOf(start), timeOf(end)
}

// ran is for how long at least one step ran under the hold.
func (h *hold) ran() int64 {
	var total int64
	until := h.from
	for i := range h.Steps {
		s := h.Steps[i].during()
		total += max(s.to-max(s.from, until), 0)
		until = max(until, s.to)
	}
	return total
}

// stepBefore is the last step that began before a time, nil if none did.
func (h *hold) stepBefore(at int64) *Step {
	var found *Step
	for i := range h.Steps {
		if h.Steps[i].during().from <= at {
			found = &h.Steps[i]
		}
	}
	return found
}

// stepDuring is the step that ran longest in a time, nil if none did.
func (h *hold) stepDuring(t interval) *Step {
	var found *Step
	var most int64
	for i := range h.Steps {
		if n := h.Steps[i].during().with(t).length(); n > most {
			found, most = &h.Steps[i], n
		}
	}
	return found
}

func (s *Step) during() interval { return interval{s.Start.UnixNano(), s.End.UnixNano()} }
