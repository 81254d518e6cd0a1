package contention

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// OutcomeOpen is that of a hold whose end was not read: it stands, or its span was lost.
const OutcomeOpen = "open"

// draft is a hold before all are put into order.
type draft struct {
	key    key
	record *record // of its own span, or, while open, of its first acquire
	interval
	open bool
}

// makeHolds makes the holds of their own spans, and, where those were not read, of the acquires that made or joined them.
func (a *analysis) makeHolds() {
	var drafts []draft
	at := map[key]int{}
	ended := a.records[kindHold]
	for i := range ended {
		r := &ended[i]
		k := r.key(r.fence)
		j, twice := at[k]
		switch {
		case !twice:
			at[k] = len(drafts)
			drafts = append(drafts, draft{k, r, interval{r.start, r.end}, false})
		default:
			a.join(&drafts[j], r)
		}
	}
	drafts = a.openHolds(drafts, at)
	text := a.symbols.text
	slices.SortFunc(drafts, func(x, y draft) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(text(x.key.resource), text(y.key.resource)),
			cmp.Compare(x.key.fence, y.key.fence), cmp.Compare(text(x.key.lockID), text(y.key.lockID)))
	})
	a.holds = make([]hold, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		a.holds[i] = a.holdOf(d)
		a.byKey[d.key] = int32(i)
		p := d.record.party()
		a.byParty[p] = append(a.byParty[p], int32(i))
	}
	a.makeSteps()
}

// join takes in another span of a hold. In plain Go several parts of one lock ID may hold without being kept: each that leaves tells of its
// own stay, and the hold is all of these, and ended as the last one. Where two processes tell of the same time, the first of them knows how it ended.
func (a *analysis) join(d *draft, r *record) {
	own := interval{d.record.start, d.record.end}
	if sameTimes(d.interval, r) || sameTimes(own, r) {
		a.reading.Repeated++
		if earlier(r, d.record) {
			if d.interval == own {
				d.interval = interval{r.start, r.end}
			}
			d.record = r
		}
		return
	}
	if earlier(d.record, r) {
		d.record = r
	}
	d.from, d.to = min(d.from, r.start), max(d.to, r.end)
}

// sameTimes reports whether a span is of that time, as far as clocks tell.
func sameTimes(at interval, r *record) bool {
	return time.Duration(at.from-r.start).Abs() <= sameTime && time.Duration(at.to-r.end).Abs() <= sameTime
}

// earlier reports which of two spans of one hold tells of its end: the writer of the later one found it gone.
func earlier(a, b *record) bool {
	return cmp.Or(cmp.Compare(a.end, b.end), bytes.Compare(a.id[:], b.id[:])) < 0
}

// holdFence names the hold that an acquire made or joined, 0 if it did not.
func (a *analysis) holdFence(r *record) int64 {
	switch outcome := a.symbols.text(r.texts[textOutcome]); {
	case outcome != telemetry.OutcomeGranted && outcome != telemetry.OutcomeJoined && outcome != telemetry.OutcomeAgain:
		return 0
	case r.hold == 0 && outcome == telemetry.OutcomeGranted:
		return r.fence
	}
	return r.hold
}

// openHolds adds the holds that only acquires tell of. What is known of their times is: a wait that ended with them, their acquires, and those who
// waited until they had ended.
func (a *analysis) openHolds(drafts []draft, at map[key]int) []draft {
	acquires := a.records[kindAcquire]
	closed := len(drafts)
	for i := range acquires {
		r := &acquires[i]
		fence := a.holdFence(r)
		if fence == 0 {
			continue
		}
		k := r.key(fence)
		j, known := at[k]
		switch {
		case !known:
			at[k] = len(drafts)
			drafts = append(drafts, draft{k, r, interval{r.start, r.end}, true})
		case j >= closed:
			d := &drafts[j]
			if r.start < d.from {
				d.record, d.from = r, r.start
			}
			d.to = max(d.to, r.end)
		}
	}
	if closed == len(drafts) {
		return drafts
	}
	waits := a.records[kindWait]
	for i := range waits {
		r := &waits[i]
		if j, ok := at[r.key(cmp.Or(r.hold, r.fence))]; ok && j >= closed {
			drafts[j].from = r.end
			drafts[j].to = max(drafts[j].to, r.end)
		}
		if !r.hasLast || !a.letIn(r) {
			continue
		}
		last := &a.symbols.blockers[r.blockers[len(r.blockers)-1]]
		if j, ok := at[key{r.texts[textResource], last.lockID, last.fence}]; ok && j >= closed {
			drafts[j].to = max(drafts[j].to, r.end)
		}
	}
	return drafts
}

// letIn reports whether a wait ended because another made room.
func (a *analysis) letIn(r *record) bool {
	outcome := a.symbols.text(r.texts[textOutcome])
	return outcome == telemetry.OutcomeGranted || outcome == telemetry.OutcomeUnclaimed
}

func (a *analysis) holdOf(d *draft) hold {
	text := a.symbols.text
	r := d.record
	owner := ownerOf(r.texts[textOwner], r.texts[textLockID])
	d.to = max(d.to, d.from)
	h := hold{interval: d.interval, key: d.key, owner: owner}
	h.Resource, h.LockID, h.Owner, h.Mode, h.Fence = text(d.key.resource), text(d.key.lockID), text(owner), a.modeOf(r), d.key.fence
	workflow, step := partyOf(h.LockID)
	h.Workflow, h.ofStep = workflow, step != ""
	h.Start, h.End = timeOf(d.from), timeOf(d.to)
	h.Host = text(r.texts[textHost])
	h.Trace, h.Span = hexIDs(r.trace, r.id)
	if d.open {
		h.Outcome, h.reach = OutcomeOpen, h.to
		return h
	}
	h.Outcome, h.Reason, h.EndedBy = text(r.texts[textOutcome]), text(r.texts[textReason]), text(r.texts[textEndedBy])
	h.reach = max(h.to, r.drained)
	if r.drained > h.to {
		h.DrainedUntil = timeOf(r.drained)
	}
	if r.expired > 0 {
		h.ExpiredAt = timeOf(r.expired)
	}
	return h
}
