package page

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// Bounds of what is listed, beside MaxHolds. Few read on where these end, and `lockstep contention --json` has everything.
const (
	maxResources = 1000
	maxRows      = 300
	// maxBlockers is per wait: behind a long queue a wait has as many as were ahead of it.
	maxBlockers = 25
	maxSteps    = 50
)

// part is what of a report goes into a page.
type part struct {
	// resources are the first ones of the report, and index their places by name.
	resources []contention.Resource
	index     map[string]int
	// holds and waits are indexes into the report's, in its order.
	holds, waits []int
	// holdAt and waitAt are where the report's stand in the page, -1 if they do not.
	holdAt, waitAt []int
	// counts are of each of the resources.
	counts []counts
	// leftOut says what is not in the page.
	leftOut []string
	// cut says which lists are not whole, which matters less: they begin with what is worst.
	cut []string
}

// counts are how many holds and waits a resource has, in the page and in the report.
type counts struct {
	Holds    int `json:"holds"`
	AllHolds int `json:"allHolds"`
	Waits    int `json:"waits"`
	AllWaits int `json:"allWaits"`
}

// bound chooses the holds and waits of the most waited-for resources. Of the one that does not fit as a whole it takes the longest waits
// and the holds that kept others waiting longest.
func bound(r *contention.Report, limit int) *part {
	p := &part{resources: r.Resources[:min(len(r.Resources), maxResources)], index: map[string]int{}}
	for i := range p.resources {
		p.index[p.resources[i].Name] = i
	}
	p.counts = make([]counts, len(p.resources))
	holds := p.perResource(len(r.Holds), func(i int) string { return r.Holds[i].Resource })
	waits := p.perResource(len(r.Waits), func(i int) string { return r.Waits[i].Resource })
	for i := range p.resources {
		h := mostOf(holds[i], limit-len(p.holds), func(n int) float64 { return holdWeight(r.Holds[n]) })
		w := mostOf(waits[i], limit-len(p.waits), func(n int) float64 { return r.Waits[n].End.Sub(r.Waits[n].Start).Seconds() })
		p.holds, p.waits = append(p.holds, h...), append(p.waits, w...)
		p.counts[i] = counts{Holds: len(h), AllHolds: len(holds[i]), Waits: len(w), AllWaits: len(waits[i])}
	}
	slices.Sort(p.holds)
	slices.Sort(p.waits)
	p.holdAt, p.waitAt = places(len(r.Holds), p.holds), places(len(r.Waits), p.waits)
	p.tellLeftOut(r)
	return p
}

// holdWeight puts first what kept others waiting, and of the rest what ended otherwise than by its release.
func holdWeight(h contention.Hold) float64 {
	if h.Blocked == 0 && h.Outcome != "released" {
		return 1e-9
	}
	return h.Blocked
}

// perResource gives for each resource of the page the indexes of what is its own.
func (p *part) perResource(n int, resource func(int) string) [][]int {
	of := make([][]int, len(p.resources))
	for i := range n {
		if at, ok := p.index[resource(i)]; ok {
			of[at] = append(of[at], i)
		}
	}
	return of
}

// mostOf returns at most limit of the indexes, those that weigh most.
func mostOf(indexes []int, limit int, weight func(int) float64) []int {
	if len(indexes) <= limit {
		return indexes
	}
	slices.SortStableFunc(indexes, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	return indexes[:limit]
}

// places inverts chosen: for each of n its place, or -1.
func places(n int, chosen []int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = -1
	}
	for place, i := range chosen {
		at[i] = place
	}
	return at
}

func (p *part) tellLeftOut(r *contention.Report) {
	tell := func(to *[]string, in, all int, what, which string) {
		if in < all {
			*to = append(*to, fmt.Sprintf("%s of %s %s are in this page: %s.", integer(in), integer(all), what, which))
		}
	}
	tell(&p.leftOut, len(p.holds), len(r.Holds), "holds", "those of the most waited-for resources, and of the last of these the ones that kept others waiting longest")
	tell(&p.leftOut, len(p.waits), len(r.Waits), "waits", "those of the most waited-for resources, and of the last of these the longest")
	tell(&p.leftOut, len(p.resources), len(r.Resources), "resources", "the most waited-for")
	for _, list := range []struct {
		n    int
		what string
	}{{len(r.Owners), "owners"}, {len(r.Roots), "root blockers"}, {len(r.Types), "pairs of types"}, {len(r.Overlong), "overlong holds"}, {len(r.Losses), "losses"}, {len(r.Deadlocks), "deadlocks"}} {
		tell(&p.cut, min(list.n, maxRows), list.n, list.what, "the first")
	}
}

func first[T any](list []T) []T { return list[:min(len(list), maxRows)] }

// thin leaves at most limit lengths of a queue: of neighbours the longest, so that no peak is lost.
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
