package contention

import (
	"cmp"
	"slices"
)

// interval is a time, in nanoseconds since 1970.
type interval struct{ from, to int64 }

func (i interval) length() int64 { return max(i.to-i.from, 0) }

// with returns the time that both have in common. Its length is 0 if there is none.
func (i interval) with(o interval) interval {
	return interval{max(i.from, o.from), min(i.to, o.to)}
}

// hull returns the time from the first start to the last end.
func hull(times []interval) (whole interval) {
	for i, t := range times {
		if i == 0 {
			whole = t
		}
		whole.from, whole.to = min(whole.from, t.from), max(whole.to, t.to)
	}
	return whole
}

// coverage is disjoint times, in their order.
type coverage []interval

// add adds a time, and returns how much of it is new.
func (c *coverage) add(at interval) int64 {
	if at.length() == 0 {
		return 0
	}
	fresh := at.length()
	first, _ := slices.BinarySearchFunc(*c, at.from, func(t interval, from int64) int { return cmp.Compare(t.to, from) })
	last := first
	for ; last < len(*c) && (*c)[last].from <= at.to; last++ {
		t := (*c)[last]
		fresh -= t.with(at).length()
		at = interval{min(at.from, t.from), max(at.to, t.to)}
	}
	*c = slices.Replace(*c, first, last, at)
	return fresh
}

func (c coverage) length() (sum int64) {
	for _, t := range c {
		sum += t.length()
	}
	return sum
}

// covered returns for how long at least one of the times lasted. It is fast if they are in the order of their starts.
func covered(times []interval) (sum int64) {
	var c coverage
	for _, t := range times {
		sum += c.add(t)
	}
	return sum
}
