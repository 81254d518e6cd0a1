package contention

import (
	"cmp"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// addOwners lists those who kept others waiting or waited themselves.
func (a *analysis) addOwners(r *Report) {
	type times struct{ waited, held int64 }
	all := map[sym]*times{}
	of := func(owner sym) *times {
		t := all[owner]
		if t == nil {
			t = &times{}
			all[owner] = t
		}
		return t
	}
	for i := range a.holds {
		if h := &a.holds[i]; a.chosenHold(h) {
			of(h.owner).held += h.length()
		}
	}
	for i := range a.waits {
		if w := &a.waits[i]; a.chosenWait(w) {
			of(w.owner).waited += w.length()
		}
	}
	worst := map[sym]ownerAt{}
	for at, length := range a.blamedOn {
		w, ok := worst[at.owner]
		most := a.blamedOn[w]
		if !ok || length > most || length == most && a.symbols.text(at.resource) < a.symbols.text(w.resource) {
			worst[at.owner] = at
		}
	}
	r.Owners = []Owner{}
	for owner, t := range all {
		b := a.blamed[owner]
		if b.waits == 0 && t.waited == 0 {
			continue
		}
		o := Owner{Name: a.symbols.text(owner), Waited: seconds(t.waited), Held: seconds(t.held)}
		if b.waits > 0 {
			o.Blocked, o.BlockedWaits, o.Worst = seconds(b.length), b.waits, a.symbols.text(worst[owner].resource)
		}
		r.Owners = append(r.Owners, o)
	}
	slices.SortFunc(r.Owners, func(x, y Owner) int {
		return cmp.Or(cmp.Compare(y.Blocked, x.Blocked), cmp.Compare(y.Waited, x.Waited), cmp.Compare(x.Name, y.Name))
	})
}

// overlong reports whether a hold stood much longer than steps ran under it. Where no step was read, nothing is known.
func (h *hold) overlong(ran int64) bool {
	return len(h.Steps) > 0 && h.length() > 2*ran && h.length()-ran > int64(100*time.Millisecond)
}

func (a *analysis) addOverlong(r *Report) {
	r.Overlong = []Overlong{}
	for i := range a.holds {
		h := &a.holds[i]
		if !a.chosenHold(h) {
			continue
		}
		if ran := h.ran(); h.overlong(ran) {
			r.Overlong = append(r.Overlong, Overlong{Hold: i, Held: seconds(h.length()), Ran: seconds(ran), Blocked: seconds(h.blocked)})
		}
	}
	slices.SortStableFunc(r.Overlong, func(x, y Overlong) int {
		return cmp.Or(cmp.Compare(y.Blocked, x.Blocked), cmp.Compare(y.Held-y.Ran, x.Held-x.Ran))
	})
}

func (a *analysis) addTotals(r *Report) {
	holds, waits := make([]int64, 0, len(a.holds)), make([]int64, 0, len(a.waits))
	var whole interval
	t := &r.Totals
	for i := range a.holds {
		h := &a.holds[i]
		if !a.chosenHold(h) {
			continue
		}
		whole = hull(whole, h.interval)
		holds = append(holds, h.length())
		if h.Outcome == telemetry.OutcomeExpired {
			t.Expired++
		}
	}
	t.Acquisitions = len(holds)
	var unexplained, handOver int64
	for i := range a.waits {
		w := &a.waits[i]
		if !a.chosenWait(w) {
			continue
		}
		whole = hull(whole, w.interval)
		waits = append(waits, w.length())
		unexplained += w.unexplained
		handOver += w.handOver
		if w.Outcome == telemetry.OutcomeGranted {
			t.Waited++
			if w.Hold < 0 {
				t.Acquisitions++ // its hold was not read
			}
		}
	}
	for _, l := range a.losses {
		if l.Outcome == telemetry.OutcomeLost {
			t.Lost++
		}
	}
	t.Wait, t.Hold, t.Deadlocks = distribution(waits), distribution(holds), len(a.deadlocks)
	t.Unexplained, t.HandOver = seconds(unexplained), seconds(handOver)
	if whole.to > 0 {
		r.From, r.To = timeOf(whole.from), timeOf(whole.to)
	}
}
