package contention

import "time"

// loadPoints is into how many equal parts the time of a report is cut.
const loadPoints = 120

// Load is how much was held, and waited for, from At until the next one, over all resources.
type Load struct {
	At time.Time `json:"at"`
	// Held and Waiting are how many holds and waits there were at once, in the mean.
	Held    float64 `json:"held"`
	Waiting float64 `json:"waiting"`
}

// addLoad needs the report's From and To.
func (a *analysis) addLoad(r *Report) {
	r.Load = []Load{}
	if !r.To.After(r.From) {
		return
	}
	whole := interval{r.From.UnixNano(), r.To.UnixNano()}
	held, waiting := newSeries(whole), newSeries(whole)
	for i := range a.holds {
		if h := &a.holds[i]; a.chosenHold(h) {
			held.add(h.interval)
		}
	}
	for i := range a.waits {
		if w := &a.waits[i]; a.chosenWait(w) {
			waiting.add(w.interval)
		}
	}
	h, w := held.means(), waiting.means()
	for i := range h {
		r.Load = append(r.Load, Load{timeOf(held.start(i)), h[i], w[i]})
	}
}

// series sums up, for each part of a time, for how long intervals lasted in it.
type series struct {
	whole interval
	parts []int64
	// change is by how much more of them last through the part as a whole than through the one
	// before.
	change []int64
}

func newSeries(whole interval) *series {
	n := min(loadPoints, whole.length())
	return &series{whole, make([]int64, n), make([]int64, n+1)}
}

// start is when a part begins. Products fit: a report of a century is no longer than 1<<62
// nanoseconds.
func (s *series) start(part int) int64 {
	n := int64(len(s.parts))
	return s.whole.from + s.whole.length()/n*int64(part) + s.whole.length()%n*int64(part)/n
}

// of is the part in which a time is.
func (s *series) of(at int64) int {
	n := len(s.parts)
	i := min(int(float64(at-s.whole.from)/float64(s.whole.length())*float64(n)), n-1)
	for i > 0 && s.start(i) > at {
		i--
	}
	for i+1 < n && s.start(i+1) <= at {
		i++
	}
	return i
}

func (s *series) add(at interval) {
	if at = at.with(s.whole); at.length() == 0 {
		return
	}
	first, last := s.of(at.from), s.of(at.to)
	if first == last {
		s.parts[first] += at.length()
		return
	}
	s.parts[first] += s.start(first+1) - at.from
	s.parts[last] += at.to - s.start(last)
	s.change[first+1]++
	s.change[last]--
}

// means are, of each part, how many lasted at once.
func (s *series) means() []float64 {
	all := make([]float64, len(s.parts))
	var through int64
	for i := range s.parts {
		through += s.change[i]
		all[i] = float64(through) + float64(s.parts[i])/float64(s.start(i+1)-s.start(i))
	}
	return all
}
