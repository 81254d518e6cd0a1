package contention

// tree finds, of intervals in the order of their starts, those that reach beyond a time, in logarithmic time for each.
type tree struct {
	n      int     // leaves, a power of two
	latest []int64 // of each node, the latest end below it; node 1 is the root, and leaves begin at n
}

func newTree(n int, end func(int) int64) tree {
	t := tree{n: 1}
	for t.n < n {
		t.n *= 2
	}
	t.latest = make([]int64, 2*t.n)
	for i := range n {
		t.latest[t.n+i] = end(i)
	}
	for i := t.n - 1; i > 0; i-- {
		t.latest[i] = max(t.latest[2*i], t.latest[2*i+1])
	}
	return t
}

// beyond calls visit, from the last to the first, for those before limit that end after a time, until it says no.
func (t *tree) beyond(limit int, after int64, visit func(int) bool) {
	t.walk(1, 0, t.n, limit, after, visit)
}

// walk does so for a node, which is of the leaves from low on, size of them.
func (t *tree) walk(node, low, size, limit int, after int64, visit func(int) bool) bool {
	switch {
	case low >= limit || t.latest[node] <= after:
		return true
	case size == 1:
		return visit(low)
	}
	half := size / 2
	return t.walk(2*node+1, low+half, half, limit, after, visit) && t.walk(2*node, low, half, limit, after, visit)
}
