package contention

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// OutcomeOpen is the outcome of a hold whose end was not read: it is still held, or its span was lost.
const OutcomeOpen = "open"

// How a hold was freed of an attempt whose worker had died; see [Death].
const (
	deathExpired = telemetry.OutcomeExpired
	deathRetried = "retried"
)

// hold is a hold of the report, with the facts that the analysis needs.
type hold struct {
	*Hold
	item
	key  holdKey
	span *lockSpan // its own span or, while it is open, that of its first acquire
	open bool      // its own span was not read
	// reach is the end of the time in which it may have kept others out: its end, or that of its draining parts.
	reach   int64
	blocked int64
	drains  []*lockSpan // acquires of its own lock ID that queued until a part of it had drained
	namedBy *wait       // the last wait in the sweep whose span names it
}

type holdKey struct {
	resource, lockID string
	fence            int64
}

// party is a lock ID at a resource.
type party struct{ resource, lockID string }

// makeHolds makes a hold of each hold span and, if that was not read, of the acquires that made or joined it.
func (a *analysis) makeHolds() {
	add := func(k holdKey, s *lockSpan, open bool) {
		h := &hold{item: item{interval: interval{s.start, s.end}}, key: k, span: s, open: open}
		a.holds = append(a.holds, h)
		a.byKey[k] = h
	}
	for i := range a.byKind[kindHold] {
		s := &a.byKind[kindHold][i]
		k := holdKey{s.resource, s.lockID, s.fence}
		if h := a.byKey[k]; h != nil {
			h.join(s, &a.report.Read.Repeated)
		} else {
			add(k, s, false)
		}
	}
	a.openHolds(add)
	slices.SortFunc(a.holds, func(x, y *hold) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.key.resource, y.key.resource),
			cmp.Compare(x.key.fence, y.key.fence), cmp.Compare(x.key.lockID, y.key.lockID))
	})
	a.report.Holds = make([]Hold, len(a.holds))
	for i, h := range a.holds {
		h.Hold = &a.report.Holds[i]
		a.describeHold(h, i)
		h.resource.holds = append(h.resource.holds, h)
		p := party{h.Resource, h.LockID}
		a.byParty[p] = append(a.byParty[p], h)
	}
	a.addSteps()
	for _, h := range a.holds {
		h.chosen = a.chosen(h.Resource, h.interval)
	}
}

// join adds another span of a hold. Without Temporal, several parts of one lock ID may hold a resource: each part's span covers its own
// time, and the hold covers all of them and ended as the last one did. If two processes wrote spans of the same time, the earlier span
// is right about the end: the writer of the later one found the hold gone.
func (h *hold) join(s *lockSpan, repeated *int) {
	own := interval{h.span.start, h.span.end}
	if sameTimes(h.interval, s) || sameTimes(own, s) {
		*repeated++
		if endsBefore(s, h.span) {
			if h.interval == own {
				h.interval = interval{s.start, s.end}
			}
			h.span = s
		}
		return
	}
	if endsBefore(h.span, s) {
		h.span = s
	}
	h.from, h.to = min(h.from, s.start), max(h.to, s.end)
}

func sameTimes(at interval, s *lockSpan) bool {
	return time.Duration(at.from-s.start).Abs() <= sameTime && time.Duration(at.to-s.end).Abs() <= sameTime
}

func endsBefore(x, y *lockSpan) bool {
	return cmp.Or(cmp.Compare(x.end, y.end), bytes.Compare(x.id[:], y.id[:])) < 0
}

// acquired returns the key of the hold that an acquire made or joined. Its fence is 0 if it did neither.
func (s *lockSpan) acquired() holdKey {
	k := holdKey{resource: s.resource, lockID: s.lockID}
	switch s.outcome {
	case telemetry.OutcomeGranted:
		k.fence = cmp.Or(s.hold, s.fence)
	case telemetry.OutcomeJoined, telemetry.OutcomeAgain:
		k.fence = s.hold
	}
	return k
}

// letIn reports whether a wait ended because the resource became free for it.
func (s *lockSpan) letIn() bool {
	return s.outcome == telemetry.OutcomeGranted || s.outcome == telemetry.OutcomeUnclaimed
}

// openHolds adds the holds that are known only from acquires. Their times follow from a wait that ended with them, from their acquires,
// and from the waits that ended with their end.
func (a *analysis) openHolds(add func(k holdKey, s *lockSpan, open bool)) {
	for i := range a.byKind[kindAcquire] {
		s := &a.byKind[kindAcquire][i]
		k := s.acquired()
		switch h := a.byKey[k]; {
		case k.fence == 0:
		case h == nil:
			add(k, s, true)
		case h.open:
			if s.start < h.from {
				h.span, h.from = s, s.start
			}
			h.to = max(h.to, s.end)
		}
	}
	for i := range a.byKind[kindWait] {
		s := &a.byKind[kindWait][i]
		if h := a.byKey[holdKey{s.resource, s.lockID, cmp.Or(s.hold, s.fence)}]; h != nil && h.open {
			h.from = s.end
			h.to = max(h.to, s.end)
		}
		if !s.namesLast || !s.letIn() {
			continue
		}
		last := s.blockedBy[len(s.blockedBy)-1]
		if h := a.byKey[holdKey{s.resource, last.lockID, last.fence}]; h != nil && h.open {
			h.to = max(h.to, s.end)
		}
	}
}

// describeHold fills in a hold's part of the report, except its steps.
func (a *analysis) describeHold(h *hold, place int) {
	s := h.span
	h.to = max(h.to, h.from)
	h.reach = h.to
	h.item = a.newItem(s, h.interval, place, &h.Subject)
	h.Fence, h.Start, h.End, h.Host = h.key.fence, timeOf(h.from), timeOf(h.to), s.host
	h.Trace, h.Span = hexIDs(s.trace, s.id)
	if h.open {
		h.Outcome = OutcomeOpen
		return
	}
	h.Outcome, h.Reason, h.EndedBy = s.outcome, s.reason, s.endedBy
	if s.drained > h.to {
		h.reach, h.DrainedUntil = s.drained, timeOf(s.drained)
	}
	if s.expired > 0 {
		h.ExpiredAt = timeOf(s.expired)
	}
}

// addSteps puts under each hold the steps that entered it, from their acquires until their leaves.
func (a *analysis) addSteps() {
	left, acquired := map[request]int64{}, map[request]bool{}
	for i := range a.byKind[kindLeave] {
		s := &a.byKind[kindLeave][i]
		if at, ok := left[s.request()]; !ok || s.start < at {
			left[s.request()] = s.start
		}
	}
	for i := range a.byKind[kindAcquire] {
		acquired[a.byKind[kindAcquire][i].request()] = true
	}
	for i := range a.byKind[kindAcquire] {
		s := &a.byKind[kindAcquire][i]
		h := a.byKey[s.acquired()]
		if h == nil {
			if len(s.blockedBy) > 0 {
				if own := a.byKey[holdKey{s.resource, s.lockID, s.blockedBy[0].fence}]; own != nil {
					own.drains = append(own.drains, s)
				}
			}
			continue
		}
		step := Step{Name: stepName(s.part), Part: s.part, Order: s.order, Start: timeOf(s.end), Host: s.host, HoldOnly: s.isHoldOnly()}
		step.Trace, step.Span = hexIDs(s.trace, s.id)
		h.Run = cmp.Or(h.Run, runOf(h.Workflow, s.part))
		if at, ok := left[s.request()]; ok {
			step.End = timeOf(max(at, s.end))
			if h.Outcome == OutcomeOpen && at > h.to {
				h.to, h.End = at, step.End
			}
		}
		h.Steps = append(h.Steps, step)
		before := s.attemptBefore()
		if _, known := left[before]; h.Workflow != "" && before.order != "" && !known && !acquired[before] {
			h.Steps = append(h.Steps, Step{Name: step.Name, Part: s.part, Order: before.order})
		}
	}
	for _, h := range a.holds {
		h.arrangeSteps()
		a.findType(&h.Subject, h.owner)
	}
}

// isHoldOnly reports whether an acquire is that of a hold without a step. Spans of earlier versions show that only by the part of a Lock.
func (s *lockSpan) isHoldOnly() bool {
	workflow, _ := parseLockID(s.lockID)
	pieces := strings.Split(s.part, "/")
	return s.holdOnly || workflow != "" && len(pieces) == 3 && pieces[1] == lockPart && isNumber(pieces[2])
}

// attemptBefore returns the request of the attempt before one that joined a hold. Its order is empty if there was none. If no span of it
// was read, its process died before it exported them.
func (s *lockSpan) attemptBefore() request {
	before := s.request()
	schedule, attempt, _ := strings.Cut(s.order, ".")
	before.order = ""
	if n := integer(attempt); n > 1 && s.outcome == telemetry.OutcomeJoined && !s.isHoldOnly() {
		before.order = fmt.Sprintf("%s.%d", schedule, n-1)
	}
	return before
}

// arrangeSteps orders the steps, drops those of repeated acquires, and fits them into the hold.
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
				s.End = h.Steps[i+1].Start
				if s.End.Before(s.Start) {
					s.End = s.Start
				}
			}
		}
	}
	for i := range h.Steps {
		if h.Steps[i].Start.IsZero() { // its acquire was not read
			h.Steps[i].Start = h.idleBefore(h.Steps[i].End)
		}
	}
	for i := range h.Steps {
		h.fit(&h.Steps[i])
	}
	h.findDeath()
	slices.SortStableFunc(h.Steps, func(x, y Step) int { return x.Start.Compare(y.Start) })
	h.Host = cmp.Or(h.Host, h.Steps[len(h.Steps)-1].Host)
}

// idleBefore returns the end of the last step that ended before a time, or else the start of the hold.
func (h *hold) idleBefore(at time.Time) time.Time {
	from := timeOf(h.from)
	for i := range h.Steps {
		if s := &h.Steps[i]; !s.Start.IsZero() && s.End.After(from) && s.End.Before(at) {
			from = s.End
		}
	}
	return from
}

// compareOrders compares orders of the form "schedule.attempt" by their numbers, and others as text.
func compareOrders(x, y string) int {
	scheduleX, attemptX, _ := strings.Cut(x, ".")
	scheduleY, attemptY, _ := strings.Cut(y, ".")
	return cmp.Or(cmp.Compare(integer(scheduleX), integer(scheduleY)), cmp.Compare(integer(attemptX), integer(attemptY)), cmp.Compare(x, y))
}

// fit moves a step into the hold, since the clock of its process may differ from the database's. It keeps its length as far as possible.
// A step whose end is unknown ran until the hold ended or expired.
func (h *hold) fit(s *Step) {
	at := s.during()
	if s.End.IsZero() {
		at.from = min(max(at.from, h.from), h.to)
		at.to = h.to
		if !h.ExpiredAt.IsZero() {
			at.to = min(at.to, h.ExpiredAt.UnixNano())
		}
		at.to = max(at.to, at.from)
	} else {
		length := min(at.to-at.from, h.length())
		at.from = min(max(at.from, h.from), h.to-length)
		at.to = at.from + length
	}
	s.Start, s.End = timeOf(at.from), timeOf(at.to)
}

func (s *Step) during() interval { return interval{s.Start.UnixNano(), s.End.UnixNano()} }

// ran returns for how long at least one step ran under the hold. What a Lock does, spans do not show.
func (h *hold) ran() int64 {
	var times []interval
	for i := range h.Steps {
		if s := &h.Steps[i]; !s.HoldOnly {
			times = append(times, s.during())
		}
	}
	return covered(times)
}

// holdOnly returns a Lock of the hold, or nil.
func (h *hold) holdOnly() *Step {
	if i := slices.IndexFunc(h.Steps, func(s Step) bool { return s.HoldOnly }); i >= 0 {
		return &h.Steps[i]
	}
	return nil
}

// stepBefore returns the last step that began before a time, or nil.
func (h *hold) stepBefore(at int64) *Step {
	var found *Step
	for i := range h.Steps {
		if h.Steps[i].during().from <= at {
			found = &h.Steps[i]
		}
	}
	return found
}

// stepDuring returns the step that ran longest in a time, or nil.
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

// findDeath finds the longest death of a worker under the hold. The steps must be in the order of parts and attempts. A kept hold that
// expires between two steps had no worker. Lockstep's own locks are left out.
func (h *hold) findDeath() {
	if inspect.Internal(h.Resource) {
		return
	}
	for i := range h.Steps {
		s := &h.Steps[i]
		if !s.EndUnseen || s.HoldOnly { // no process works under a Lock
			continue
		}
		d := Death{Step: s.Name, Host: s.Host, From: s.Start, To: s.End, Ended: deathRetried}
		if i+1 == len(h.Steps) || h.Steps[i+1].Part != s.Part { // the last attempt
			if h.Outcome != telemetry.OutcomeExpired {
				continue
			}
			d.To, d.Ended = h.End, deathExpired
		} else {
			d.To = h.drainedAfter(&d)
		}
		if h.WorkerDied == nil || d.To.Sub(d.From) > h.WorkerDied.To.Sub(h.WorkerDied.From) {
			h.WorkerDied = &d
		}
	}
}

// drainedAfter returns the time at which the hold was freed of a dead attempt: when the next attempt entered or, if a compensation had to
// wait until the dead attempt's part had drained, when that step entered.
func (h *hold) drainedAfter(d *Death) time.Time {
	to := d.To
	for _, s := range h.drains {
		i := slices.IndexFunc(h.Steps, func(next Step) bool { return next.Part == s.part && next.Start.UnixNano() >= s.end })
		if i >= 0 && s.start >= d.From.UnixNano() && h.Steps[i].Start.After(to) {
			to = h.Steps[i].Start
		}
	}
	return to
}

// dead returns the longest time for which the hold may have had no worker.
func (h *hold) dead() interval {
	d := h.WorkerDied
	if d == nil {
		return interval{}
	}
	to := d.To.UnixNano()
	if d.Ended == deathExpired {
		to = max(h.reach, to)
	}
	return interval{d.From.UnixNano(), to}
}

// mostlyDead reports whether the death of a worker explains most of the hold.
func (h *hold) mostlyDead() bool { return 2*h.dead().length() >= h.length() && h.WorkerDied != nil }

func (d *Death) text() string {
	if d.Ended == deathExpired {
		return fmt.Sprintf("a worker died, or hung, in step %s, and the hold expired", d.Step)
	}
	return fmt.Sprintf("a worker died, or hung, in step %s, which delayed its saga by %s", d.Step, Seconds(d.To.Sub(d.From).Seconds()))
}

// overlong reports whether the hold lasted much longer than steps ran under it. Without steps, or with a Lock, nothing is known.
func (h *hold) overlong(ran int64) bool {
	return len(h.Steps) > 0 && h.holdOnly() == nil && h.length() > 2*ran && h.length()-ran > int64(100*time.Millisecond)
}
