package contention

import "container/heap"

// places finds the greatest of a section of values.
type places struct {
	n     int
	value func(int) int64
	best  []int32 // of each node the place of the greatest value below it, the first of equals; leaves begin at n
}

func newPlaces(n int, value func(int) int64) places {
	p := places{n: n, value: value, best: make([]int32, 2*n)}
	for i := range n {
		p.best[n+i] = int32(i)
	}
	for i := n - 1; i > 0; i-- {
		p.best[i] = p.better(p.best[2*i], p.best[2*i+1])
	}
	return p
}

func (p *places) better(x, y int32) int32 {
	vx, vy := p.value(int(x)), p.value(int(y))
	if vy > vx || vy == vx && y < x {
		return y
	}
	return x
}

// greatest is the place of the greatest value of a section, which is not empty.
func (p *places) greatest(in section) int {
	best := int32(in.lo) //nolint:gosec // as many as holds
	for lo, hi := in.lo+p.n, in.hi+p.n; lo < hi; lo, hi = lo/2, hi/2 {
		if lo%2 == 1 {
			best = p.better(best, p.best[lo])
			lo++
		}
		if hi%2 == 1 {
			hi--
			best = p.better(best, p.best[hi])
		}
	}
	return int(best)
}

// part is a section, and the place of its greatest value.
type part struct {
	section
	greatest int
	value    int64
}

// most calls visit for the places of the greatest values of a section, from the greatest on, until it says no.
func (p *places) most(in section, visit func(int) bool) {
	var parts partition
	add := func(s section) {
		if s.count() > 0 {
			i := p.greatest(s)
			heap.Push(&parts, part{s, i, p.value(i)})
		}
	}
	add(in)
	for len(parts) > 0 {
		next := heap.Pop(&parts).(part)
		if !visit(next.greatest) {
			return
		}
		add(section{next.lo, next.greatest})
		add(section{next.greatest + 1, next.hi})
	}
}

// partition is a heap whose root has the greatest value.
type partition []part

func (p partition) Len() int { return len(p) }
func (p partition) Less(i, j int) bool {
	return p[i].value > p[j].value || p[i].value == p[j].value && p[i].greatest < p[j].greatest
}
func (p partition) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *partition) Push(x any)   { *p = append(*p, x.(part)) }
func (p *partition) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}
