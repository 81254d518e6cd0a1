package scene

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/contention"
)

// summarise fills in what follows from holds and waits. It is the plainest way to get there, and no model for reading traces.
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
	chains(r)
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

// chains takes the longest waits whose last blocker waited itself meanwhile.
func chains(r *contention.Report) {
	waitsOf := map[string][]int{}
	for i, w := range r.Waits {
		waitsOf[w.Owner] = append(waitsOf[w.Owner], i)
	}
	for i, w := range r.Waits {
		if len(w.Blockers) == 0 {
			continue
		}
		b := w.Blockers[len(w.Blockers)-1]
		for _, n := range waitsOf[b.Owner] {
			second := r.Waits[n]
			if second.Resource == w.Resource || len(second.Blockers) == 0 || second.Start.After(w.End) || second.End.Before(w.Start) {
				continue
			}
			third := second.Blockers[len(second.Blockers)-1]
			first, middle := w.End.Sub(w.Start), second.End.Sub(second.Start)
			r.Chains = append(r.Chains, contention.Chain{
				Links: []contention.ChainLink{
					{Owner: w.Owner, Resource: w.Resource, Waited: first.Seconds(), Step: w.Step, Wait: i, Hold: -1},
					{Owner: b.Owner, Resource: second.Resource, Waited: middle.Seconds(), Step: second.Step, Wait: n, Hold: b.Hold},
					{Owner: third.Owner, Wait: -1, Hold: third.Hold, Step: third.Step},
				},
				Total: first.Seconds(),
				Text: fmt.Sprintf("%s waited %s for %s, which %s held while it waited %s for %s, which %s held in its step %s.",
					w.Owner, round(first), w.Resource, b.Owner, round(middle), second.Resource, third.Owner, third.Step),
			})
			break
		}
	}
	slices.SortStableFunc(r.Chains, func(a, b contention.Chain) int { return cmp.Compare(b.Total, a.Total) })
	r.Chains = r.Chains[:min(len(r.Chains), 20)]
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
