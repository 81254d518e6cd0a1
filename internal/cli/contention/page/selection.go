package page

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// Bounds of the page's lists, in addition to MaxHolds. `lockstep contention --json` has everything.
const (
	maxResources = 1000
	maxRows      = 300
	maxBlockers  = 25 // of a wait
	maxSteps     = 50 // of a hold
)

// selection is the part of a report that its page has.
type selection struct {
	// resources are the first ones of the report, and index their places by name.
	resources []contention.Resource
	index     map[string]int
	// holds and waits are places in the report, in its order; holdAt and waitAt are the inverse, -1 for what is left out.
	holds, waits   []int
	holdAt, waitAt []int
	counts         []counts // by resource
	// leftOut describes the holds, waits and resources that are not in the page, and cut the lists that are not complete.
	leftOut, cut []string
}

// counts are a resource's holds and waits, in the page and in the report.
type counts struct {
	Holds    int `json:"holds"`
	AllHolds int `json:"allHolds"`
	Waits    int `json:"waits"`
	AllWaits int `json:"allWaits"`
}

// choose selects the holds and waits of the most waited-for resources. Of the resource that does not fit in full it takes the longest waits
// and the holds that kept others waiting longest.
func choose(r *contention.Report, limit int) *selection {
	s := &selection{resources: r.Resources[:min(len(r.Resources), maxResources)], index: map[string]int{}, leftOut: []string{}, cut: []string{}}
	for i := range s.resources {
		s.index[s.resources[i].Name] = i
	}
	holds, waits := make([][]int, len(s.resources)), make([][]int, len(s.resources))
	for i := range r.Holds {
		if at, ok := s.index[r.Holds[i].Resource]; ok {
			holds[at] = append(holds[at], i)
		}
	}
	for i := range r.Waits {
		if at, ok := s.index[r.Waits[i].Resource]; ok {
			waits[at] = append(waits[at], i)
		}
	}
	for i := range s.resources {
		h := mostOf(holds[i], limit-len(s.holds), func(n int) float64 { return holdWeight(&r.Holds[n]) })
		w := mostOf(waits[i], limit-len(s.waits), func(n int) float64 { return r.Waits[n].End.Sub(r.Waits[n].Start).Seconds() })
		s.holds, s.waits = append(s.holds, h...), append(s.waits, w...)
		s.counts = append(s.counts, counts{Holds: len(h), AllHolds: len(holds[i]), Waits: len(w), AllWaits: len(waits[i])})
	}
	slices.Sort(s.holds)
	slices.Sort(s.waits)
	s.holdAt, s.waitAt = invert(len(r.Holds), s.holds), invert(len(r.Waits), s.waits)
	s.describe(r)
	return s
}

// holdWeight prefers holds that kept others waiting, and among the rest the ones that did not end by their release.
func holdWeight(h *contention.Hold) float64 {
	if h.Blocked == 0 && h.Outcome != "released" {
		return 1e-9
	}
	return h.Blocked
}

// mostOf returns at most limit of the places, by weight.
func mostOf(places []int, limit int, weight func(int) float64) []int {
	if len(places) <= limit {
		return places
	}
	slices.SortStableFunc(places, func(x, y int) int { return cmp.Compare(weight(y), weight(x)) })
	return places[:limit]
}

// invert returns, for each of n, its index in chosen, or -1.
func invert(n int, chosen []int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = -1
	}
	for place, i := range chosen {
		at[i] = place
	}
	return at
}

func (s *selection) describe(r *contention.Report) {
	add := func(to *[]string, in, all int, what, which string) {
		if in < all {
			*to = append(*to, fmt.Sprintf("%s of %s %s are in this page: %s.", integer(in), integer(all), what, which))
		}
	}
	add(&s.leftOut, len(s.holds), len(r.Holds), "holds", "those of the most waited-for resources, and of the last of these the ones that kept others waiting longest")
	add(&s.leftOut, len(s.waits), len(r.Waits), "waits", "those of the most waited-for resources, and of the last of these the longest")
	add(&s.leftOut, len(s.resources), len(r.Resources), "resources", "the most waited-for")
	for _, list := range []struct {
		n    int
		what string
	}{
		{len(r.Owners), "owners"},
		{len(r.Roots), "root blockers"},
		{len(r.Types), "pairs of types"},
		{len(r.Overlong), "overlong holds"},
		{len(r.Losses), "losses"},
		{len(r.Deadlocks), "deadlocks"},
		{len(r.Members), "members of pools"},
	} {
		add(&s.cut, min(list.n, maxRows), list.n, list.what, "the first")
	}
}

// first returns a copy of the first maxRows elements, never nil.
func first[T any](list []T) []T { return append([]T{}, list[:min(len(list), maxRows)]...) }

// thin keeps at most limit lengths of a queue: the longest of neighbours, so that no peak is lost.
func thin(queue []contention.QueueLength, limit int) []contention.QueueLength {
	if len(queue) <= limit {
		return queue
	}
	step := (len(queue) + limit - 1) / limit
	thinned := make([]contention.QueueLength, 0, limit)
	for chunk := range slices.Chunk(queue, step) {
		longest := slices.MaxFunc(chunk, func(a, b contention.QueueLength) int { return cmp.Compare(a.Length, b.Length) })
		thinned = append(thinned, contention.QueueLength{At: chunk[0].At, Length: longest.Length})
	}
	return thinned
}
