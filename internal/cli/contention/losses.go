package contention

import (
	"cmp"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// findLosses lists the holds that were displaced or taken away, and the steps that found their lock lost.
func (a *analysis) findLosses() {
	for i := range a.holds {
		h := &a.holds[i]
		switch h.Outcome {
		case telemetry.OutcomeExpired, telemetry.OutcomeRevoked, telemetry.OutcomeOrphaned:
		default:
			continue
		}
		if !a.chosenHold(h) {
			continue
		}
		a.losses = append(a.losses, Loss{
			Hold: i, Resource: h.Resource, LockID: h.LockID, Owner: h.Owner, At: h.End,
			Outcome: h.Outcome, Reason: h.Reason, Trace: h.Trace, Span: h.Span,
		})
	}
	for _, kind := range []kind{kindAcquire, kindRenew, kindLeave, kindLost} {
		for i := range a.records[kind] {
			r := &a.records[kind][i]
			if a.symbols.text(r.texts[textOutcome]) != telemetry.OutcomeLost || r.texts[textResource] == 0 && a.toldBetter(r) ||
				!a.chosen(a.symbols.text(r.texts[textResource]), interval{r.start, r.end}) {
				continue
			}
			a.losses = append(a.losses, a.lossOf(r))
		}
	}
	slices.SortStableFunc(a.losses, func(x, y Loss) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Outcome, y.Outcome), cmp.Compare(x.Span, y.Span))
	})
	a.losses = slices.Compact(a.losses) // spans of others may have been read twice
}

// toldBetter reports whether those who held told, by name, of what a renewal of several locks found lost.
func (a *analysis) toldBetter(renewal *record) bool {
	return slices.ContainsFunc(a.records[kindLost], func(r record) bool {
		return r.start >= renewal.start-int64(time.Second) && r.start <= renewal.end+int64(5*time.Second)
	})
}

// lossOf is that of a step, with the hold that it had last. A renewal of several locks names none.
func (a *analysis) lossOf(r *record) Loss {
	text := a.symbols.text
	l := Loss{
		Hold: -1, Resource: text(r.texts[textResource]), LockID: text(r.texts[textLockID]),
		Owner: text(ownerOf(r.texts[textOwner], r.texts[textLockID])), At: timeOf(r.end),
		Outcome: telemetry.OutcomeLost, Reason: text(r.texts[textReason]),
	}
	l.Trace, l.Span = hexIDs(r.trace, r.id)
	of := a.byParty[r.party()]
	for i := len(of) - 1; i >= 0; i-- {
		if h := &a.holds[of[i]]; h.from <= r.end {
			l.Hold, l.Owner = int(of[i]), h.Owner
			break
		}
	}
	return l
}
