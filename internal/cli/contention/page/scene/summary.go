package scene

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// summarise fills in what follows from holds and waits. It is the plainest way to get there, and no
// model for reading traces.
func summarise(r *contention.Report) {
	for i := range r.Holds {
		r.To = later(r.To, r.Holds[i].End)
	}
	for i := range r.Waits {
		r.To = later(r.To, r.Waits[i].End)
	}
	blame(r)
	resources(r)
	owners(r)
	roots(r)
	for i, h := range r.Holds {
		held, ran := h.End.Sub(h.Start), h.Steps[len(h.Steps)-1].End.Sub(h.Start)
		if held > 25*ran && held > 300*time.Millisecond {
			r.Overlong = append(r.Overlong, contention.Overlong{Hold: i, Held: held.Seconds(), Ran: ran.Seconds(), Blocked: h.Blocked})
		}
	}
	slices.SortFunc(r.Overlong, func(a, b contention.Overlong) int { return cmp.Compare(b.Blocked, a.Blocked) })
	r.Totals.Wait = distribution(r.Waits, func(w contention.Wait) float64 { return w.End.Sub(w.Start).Seconds() })
	r.Totals.Hold = distribution(r.Holds, func(h contention.Hold) float64 { return h.End.Sub(h.Start).Seconds() })
	r.Totals.Deadlocks, r.Totals.Expired = len(r.Deadlocks), len(r.Losses)
	groups(r)
	r.Read = contention.Reading{Files: 2, Spans: 5 * len(r.Holds), LockSpans: len(r.Holds) + len(r.Waits), Broken: 1,
		Problems: []string{"worker-2.json:118: the line ends in the middle of a document"}}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// blame finds for each wait the holds that stood meanwhile.
func blame(r *contention.Report) {
	of := map[string][]int{}
	for i, h := range r.Holds {
		of[h.Resource] = append(of[h.Resource], i)
	}
	for i := range r.Waits {
		w := &r.Waits[i]
		holds := of[w.Resource]
		// Holds are in the order of their starts, and none is as long as this.
		near, _ := slices.BinarySearchFunc(holds, w.Start.Add(-2*time.Second), func(n int, t time.Time) int { return r.Holds[n].Start.Compare(t) })
		for _, n := range holds[near:] {
			h := &r.Holds[n]
			if !h.End.After(w.Start) {
				continue
			}
			if !h.Start.Before(w.End) {
				break
			}
			from, to := later(h.Start, w.Start).Sub(w.Start), min(h.End.Sub(w.Start), w.End.Sub(w.Start))
			w.Blockers = append(w.Blockers, contention.Blocker{
				Hold: n, LockID: h.LockID, Owner: h.Owner, Fence: h.Fence, Workflow: h.Workflow, Step: h.Steps[0].Name, Trace: h.Steps[0].Trace, Span: h.Steps[0].Span,
				From: from.Seconds(), To: to.Seconds(), Named: !h.Start.After(w.Start) || h.End.Equal(w.End), Last: h.End.Equal(w.End) && w.Outcome == "granted",
			})
			h.Blocked += (to - from).Seconds()
			h.Blocks = append(h.Blocks, i)
		}
	}
}

func distribution[T any](items []T, seconds func(T) float64) contention.Distribution {
	d := contention.Distribution{Count: len(items)}
	values := make([]float64, len(items))
	for i, item := range items {
		values[i] = seconds(item)
		d.Total += values[i]
	}
	if len(values) == 0 {
		return d
	}
	slices.Sort(values)
	rank := func(p float64) float64 { return values[max(0, int(math.Ceil(p*float64(len(values))))-1)] }
	d.P50, d.P95, d.P99, d.Max = rank(0.5), rank(0.95), rank(0.99), values[len(values)-1]
	return d
}

func resources(r *contention.Report) {
	holds, waits := map[string][]contention.Hold{}, map[string][]contention.Wait{}
	for _, h := range r.Holds {
		holds[h.Resource] = append(holds[h.Resource], h)
	}
	for _, w := range r.Waits {
		waits[w.Resource] = append(waits[w.Resource], w)
	}
	for name := range holds {
		res := contention.Resource{
			Name: name,
			Wait: distribution(waits[name], func(w contention.Wait) float64 { return w.End.Sub(w.Start).Seconds() }),
			Hold: distribution(holds[name], func(h contention.Hold) float64 { return h.End.Sub(h.Start).Seconds() }),
		}
		all := r.To.Sub(r.From).Seconds()
		queueOf(&res, waits[name], all)
		res.Busy = min(1, res.Hold.Total/all)
		res.Why = fmt.Sprintf("It was held %.0f %% of the time, by one after the other for %.1f ms in the median, while up to %d waited for it at once.",
			100*res.Busy, 1000*res.Hold.P50, res.LongestQueue)
		r.Resources = append(r.Resources, res)
	}
	slices.SortFunc(r.Resources, func(a, b contention.Resource) int {
		return cmp.Or(cmp.Compare(b.Wait.Total, a.Wait.Total), cmp.Compare(a.Name, b.Name))
	})
}

func queueOf(res *contention.Resource, waits []contention.Wait, all float64) {
	steps := map[time.Time]int{}
	for _, w := range waits {
		steps[w.Start]++
		steps[w.End]--
	}
	times := make([]time.Time, 0, len(steps))
	for t := range steps {
		times = append(times, t)
	}
	slices.SortFunc(times, time.Time.Compare)
	length, contended := 0, 0.0
	for i, t := range times {
		if length > 0 {
			contended += t.Sub(times[i-1]).Seconds()
		}
		length += steps[t]
		res.Queue = append(res.Queue, contention.QueueLength{At: t, Length: length})
		res.LongestQueue = max(res.LongestQueue, length)
	}
	res.Contended = contended / all
}

func owners(r *contention.Report) {
	byName := map[string]*contention.Owner{}
	of := func(name string) *contention.Owner {
		if byName[name] == nil {
			byName[name] = &contention.Owner{Name: name}
		}
		return byName[name]
	}
	for _, h := range r.Holds {
		o := of(h.Owner)
		o.Blocked += h.Blocked
		o.BlockedWaits += len(h.Blocks)
		o.Held += h.End.Sub(h.Start).Seconds()
		o.Worst = h.Resource
	}
	for _, w := range r.Waits {
		of(w.Owner).Waited += w.End.Sub(w.Start).Seconds()
	}
	for _, o := range byName {
		r.Owners = append(r.Owners, *o)
	}
	slices.SortFunc(r.Owners, func(a, b contention.Owner) int {
		return cmp.Or(cmp.Compare(b.Blocked, a.Blocked), cmp.Compare(a.Name, b.Name))
	})
	r.Owners = r.Owners[:min(len(r.Owners), 50)]
}

// roots takes each owner for the root of those that waited for it last, and these for the parents
// of those that waited for them meanwhile.
func roots(r *contention.Report) {
	by := map[string][]int{} // waits, by the owner of the last hold in their way
	for i, w := range r.Waits {
		if n := len(w.Blockers); n > 0 {
			by[w.Blockers[n-1].Owner] = append(by[w.Blockers[n-1].Owner], i)
		}
	}
	for owner, waits := range by {
		root := contention.Root{Owner: owner, WorkflowType: typeOf(owner), Hold: -1}
		for _, i := range waits {
			w := &r.Waits[i]
			next := behind(w, i)
			for _, j := range by[w.Owner] {
				if second := &r.Waits[j]; second.Owner != owner && second.Start.Before(w.End) && second.End.After(w.Start) {
					below := behind(second, j)
					next.Total += below.Waited
					next.Waiters = append(next.Waiters, below)
				}
			}
			hold := w.Blockers[len(w.Blockers)-1].Hold
			root.Hold, root.Resource, root.Did = hold, w.Resource, "held "+w.Resource+" "+round(r.Holds[hold].End.Sub(r.Holds[hold].Start)).String()
			root.Caused += next.Total
			root.Waits += 1 + len(next.Waiters)
			root.Waiters = append(root.Waiters, next)
		}
		r.Roots = append(r.Roots, root)
	}
	slices.SortFunc(r.Roots, func(a, b contention.Root) int {
		return cmp.Or(cmp.Compare(b.Caused, a.Caused), cmp.Compare(a.Owner, b.Owner))
	})
	r.Roots = r.Roots[:min(len(r.Roots), 20)]
}

func behind(w *contention.Wait, i int) contention.Waiter {
	length := w.End.Sub(w.Start).Seconds()
	return contention.Waiter{Owner: w.Owner, WorkflowType: typeOf(w.Owner), Resource: w.Resource, Step: w.Step, Waited: length, Total: length, Wait: i}
}

// typeOf is what an owner's name begins with.
func typeOf(owner string) string {
	name, _, _ := strings.Cut(owner, "-")
	return name
}

// groups fills in what is grouped by type and by time.
func groups(r *contention.Report) {
	byType := map[[2]string]*contention.TypePair{}
	for _, w := range r.Waits {
		for _, b := range w.Blockers {
			of := [2]string{typeOf(w.Owner), typeOf(b.Owner)}
			if byType[of] == nil {
				byType[of] = &contention.TypePair{Waiter: of[0], Blocker: of[1], Steps: []contention.StepPair{{Waiter: w.Step, Blocker: b.Step}}}
			}
			p := byType[of]
			p.Waited += b.To - b.From
			p.Waits++
			p.Steps[0].Waited, p.Steps[0].Waits = p.Waited, p.Waits
		}
	}
	for _, p := range byType {
		r.Types = append(r.Types, *p)
	}
	slices.SortFunc(r.Types, func(a, b contention.TypePair) int { return cmp.Compare(b.Waited, a.Waited) })
	const parts = 60
	for i := range parts {
		at := r.From.Add(r.To.Sub(r.From) * time.Duration(i) / parts)
		l := contention.Load{At: at}
		for _, h := range r.Holds {
			if !h.Start.After(at) && h.End.After(at) {
				l.Held++
			}
		}
		for _, w := range r.Waits {
			if !w.Start.After(at) && w.End.After(at) {
				l.Waiting++
			}
		}
		r.Load = append(r.Load, l)
	}
	r.Conclusion = []contention.Finding{{
		Rule: "hot", Waited: r.Totals.Wait.Total, Text: r.Resources[0].Name + " is held nearly all of the time by one hold after another",
		Advice: "It is wanted more often than it can be had: divide it, or shorten the steps that hold it",
	}}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
