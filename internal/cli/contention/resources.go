package contention

import (
	"cmp"
	"slices"
)

// usage is one resource's holds and waits that the report is about, in the order of their starts.
type usage struct {
	resource sym
	name     string
	holds    []*hold
	waits    []*wait
}

// usages are those of all resources, in no order.
func (a *analysis) usages() []*usage {
	at := map[sym]*usage{}
	var all []*usage
	of := func(resource sym) *usage {
		u := at[resource]
		if u == nil {
			u = &usage{resource: resource, name: a.symbols.text(resource)}
			at[resource] = u
			all = append(all, u)
		}
		return u
	}
	for i := range a.holds {
		if h := &a.holds[i]; a.chosenHold(h) {
			u := of(h.key.resource)
			u.holds = append(u.holds, h)
		}
	}
	for i := range a.waits {
		if w := &a.waits[i]; a.chosenWait(w) {
			u := of(w.record.texts[textResource])
			u.waits = append(u.waits, w)
		}
	}
	return all
}

func (a *analysis) addResources(r *Report) {
	all := a.usages()
	r.Resources = make([]Resource, 0, len(all))
	for _, u := range all {
		res := Resource{Name: u.name, Wait: waitsOf(u.waits), Hold: holdsOf(u.holds)}
		holds, waits := make([]interval, len(u.holds)), make([]interval, len(u.waits))
		for i, h := range u.holds {
			holds[i] = h.interval
		}
		var unexplained, handOver int64
		for i, w := range u.waits {
			waits[i] = w.interval
			unexplained += w.unexplained
			handOver += w.handOver
		}
		whole := hull(hull(interval{}, holds...), waits...)
		if n := float64(whole.length()); n > 0 {
			res.Busy, res.Contended = float64(covered(holds))/n, float64(covered(waits))/n
		}
		res.Unexplained, res.HandOver = seconds(unexplained), seconds(handOver)
		res.Queue, res.LongestQueue = queueOf(waits)
		res.Why = a.why(u, &res)
		r.Resources = append(r.Resources, res)
	}
	slices.SortFunc(r.Resources, func(x, y Resource) int {
		return cmp.Or(cmp.Compare(y.Wait.Total, x.Wait.Total), cmp.Compare(y.Hold.Total, x.Hold.Total), cmp.Compare(x.Name, y.Name))
	})
}

func waitsOf(waits []*wait) Distribution {
	lengths := make([]int64, len(waits))
	for i, w := range waits {
		lengths[i] = w.length()
	}
	return distribution(lengths)
}

func holdsOf(holds []*hold) Distribution {
	lengths := make([]int64, len(holds))
	for i, h := range holds {
		lengths[i] = h.length()
	}
	return distribution(lengths)
}

// hull is the time from the first start to the last end.
func hull(of interval, more ...interval) interval {
	for _, m := range more {
		if of == (interval{}) {
			of = m
		}
		of.from, of.to = min(of.from, m.from), max(of.to, m.to)
	}
	return of
}

// covered is for how long at least one of intervals lasted, which are in the order of their starts.
func covered(intervals []interval) int64 {
	var total, until int64
	for _, i := range intervals {
		total += max(i.to-max(i.from, until), 0)
		until = max(until, i.to)
	}
	return total
}

// queueOf is the length of the queue whenever it changes. At one moment leaving counts before coming.
func queueOf(waits []interval) (lengths []QueueLength, longest int) {
	type change struct {
		at int64
		by int
	}
	changes := make([]change, 0, 2*len(waits))
	for _, w := range waits {
		if w.length() > 0 {
			changes = append(changes, change{w.from, 1}, change{w.to, -1})
		}
	}
	slices.SortFunc(changes, func(x, y change) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.by, y.by)) })
	lengths = []QueueLength{}
	length := 0
	for i, c := range changes {
		length += c.by
		longest = max(longest, length)
		if i+1 < len(changes) && changes[i+1].at == c.at {
			continue
		}
		if n := len(lengths); n == 0 || lengths[n-1].Length != length {
			lengths = append(lengths, QueueLength{timeOf(c.at), length})
		}
	}
	return lengths, longest
}
