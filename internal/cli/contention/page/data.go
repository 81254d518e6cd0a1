package page

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// data is the data of a page, as assets/data.js reads it. Holds and waits, which are many, are rows of numbers; texts in them are places
// in a table of strings. The rest is as in the report's JSON.
type data struct {
	TraceURL string `json:"traceURL"`
	// From and To are in milliseconds since 1970; times in rows are microseconds since From.
	From    float64            `json:"from"`
	To      float64            `json:"to"`
	Read    contention.Reading `json:"read"`
	Totals  contention.Totals  `json:"totals"`
	LeftOut []string           `json:"leftOut"`
	Cut     []string           `json:"cut"`
	// Strings is the table; the first is empty.
	Strings   []string   `json:"strings"`
	Resources []resource `json:"resources"`

	HoldColumns []column[*contention.Hold] `json:"holdColumns"`
	Holds       [][]any                    `json:"holds"`
	WaitColumns []column[*contention.Wait] `json:"waitColumns"`
	Waits       [][]any                    `json:"waits"`
	// Strangers are holds that blocked a wait and are not in the page: not read, or left out.
	StrangerColumns []column[stranger] `json:"strangerColumns"`
	Strangers       [][]any            `json:"strangers"`

	Owners    []contention.Owner    `json:"owners"`
	Roots     []contention.Root     `json:"roots"`
	Types     []contention.TypePair `json:"types"`
	Load      []load                `json:"load"`
	Overlong  []contention.Overlong `json:"overlong"`
	Losses    []contention.Loss     `json:"losses"`
	Deadlocks []contention.Deadlock `json:"deadlocks"`
}

// resource is a resource of the report, whose queue is pairs of time and length.
type resource struct {
	contention.Resource
	Queue  []int64 `json:"queue"`
	Counts counts  `json:"counts"`
}

// load is a load of the report, with its time in milliseconds since 1970.
type load struct {
	At      float64 `json:"at"`
	Held    float64 `json:"held"`
	Waiting float64 `json:"waiting"`
}

type stranger struct {
	resource, lockID, owner, workflow string
	fence                             int64
	hold                              int
}

type strangerKey struct {
	resource, lockID string
	fence            int64
	hold             int
}

// column is one number of each row: a place in the table of strings ("string"), a time ("time"), a duration ("micros"), or itself ("value").
type column[T any] struct {
	Name  string                `json:"name"`
	Is    string                `json:"is"`
	value func(*encoder, T) any // Is determines what happens to it
}

var holdColumns = []column[*contention.Hold]{
	{"resource", "value", func(e *encoder, h *contention.Hold) any { return e.index[h.Resource] }},
	{"lockId", "string", func(_ *encoder, h *contention.Hold) any { return h.LockID }},
	{"owner", "string", func(_ *encoder, h *contention.Hold) any { return h.Owner }},
	{"workflow", "string", func(_ *encoder, h *contention.Hold) any { return h.Workflow }},
	{"run", "string", func(_ *encoder, h *contention.Hold) any { return h.Run }},
	{"mode", "string", func(_ *encoder, h *contention.Hold) any { return h.Mode }},
	{"fence", "value", func(_ *encoder, h *contention.Hold) any { return fence(h.Fence) }},
	{"start", "time", func(_ *encoder, h *contention.Hold) any { return h.Start }},
	{"end", "time", func(_ *encoder, h *contention.Hold) any { return h.End }},
	{"outcome", "string", func(_ *encoder, h *contention.Hold) any { return h.Outcome }},
	{"reason", "string", func(_ *encoder, h *contention.Hold) any { return h.Reason }},
	{"endedBy", "string", func(_ *encoder, h *contention.Hold) any { return h.EndedBy }},
	{"expiredAt", "time", func(_ *encoder, h *contention.Hold) any { return h.ExpiredAt }},
	{"host", "string", func(_ *encoder, h *contention.Hold) any { return h.Host }},
	{"trace", "string", func(_ *encoder, h *contention.Hold) any { return h.Trace }},
	{"span", "string", func(_ *encoder, h *contention.Hold) any { return h.Span }},
	{"blocked", "micros", func(_ *encoder, h *contention.Hold) any { return h.Blocked }},
	{"blocks", "value", func(_ *encoder, h *contention.Hold) any { return len(h.Blocks) }},
	{"steps", "value", func(e *encoder, h *contention.Hold) any { return e.steps(h.Steps[:min(len(h.Steps), maxSteps)]) }},
	{"moreSteps", "value", func(_ *encoder, h *contention.Hold) any { return max(len(h.Steps)-maxSteps, 0) }},
	{"workflowType", "string", func(_ *encoder, h *contention.Hold) any { return h.WorkflowType }},
	{"workerDied", "value", func(_ *encoder, h *contention.Hold) any { return h.WorkerDied }},
}

var waitColumns = []column[*contention.Wait]{
	{"resource", "value", func(e *encoder, w *contention.Wait) any { return e.index[w.Resource] }},
	{"lockId", "string", func(_ *encoder, w *contention.Wait) any { return w.LockID }},
	{"owner", "string", func(_ *encoder, w *contention.Wait) any { return w.Owner }},
	{"workflow", "string", func(_ *encoder, w *contention.Wait) any { return w.Workflow }},
	{"run", "string", func(_ *encoder, w *contention.Wait) any { return w.Run }},
	{"mode", "string", func(_ *encoder, w *contention.Wait) any { return w.Mode }},
	{"part", "string", func(_ *encoder, w *contention.Wait) any { return w.Part }},
	{"step", "string", func(_ *encoder, w *contention.Wait) any { return w.Step }},
	{"start", "time", func(_ *encoder, w *contention.Wait) any { return w.Start }},
	{"end", "time", func(_ *encoder, w *contention.Wait) any { return w.End }},
	{"outcome", "string", func(_ *encoder, w *contention.Wait) any { return w.Outcome }},
	{"position", "value", func(_ *encoder, w *contention.Wait) any { return w.Position }},
	{"trace", "string", func(_ *encoder, w *contention.Wait) any { return w.Trace }},
	{"span", "string", func(_ *encoder, w *contention.Wait) any { return w.Span }},
	{"hold", "value", func(e *encoder, w *contention.Wait) any { return at(e.holdAt, w.Hold) }},
	{"unexplained", "micros", func(_ *encoder, w *contention.Wait) any { return max(w.Unexplained-w.HandOver, 0) }},
	{"handOver", "micros", func(_ *encoder, w *contention.Wait) any { return w.HandOver }},
	{"blockers", "value", func(e *encoder, w *contention.Wait) any { return e.blockers(w) }},
	{"moreBlockers", "value", func(_ *encoder, w *contention.Wait) any { return max(len(w.Blockers)-maxBlockers, 0) + w.Omitted }},
	{"workflowType", "string", func(_ *encoder, w *contention.Wait) any { return w.WorkflowType }},
}

var strangerColumns = []column[stranger]{
	{"resource", "value", func(e *encoder, s stranger) any { return e.index[s.resource] }},
	{"lockId", "string", func(_ *encoder, s stranger) any { return s.lockID }},
	{"owner", "string", func(_ *encoder, s stranger) any { return s.owner }},
	{"workflow", "string", func(_ *encoder, s stranger) any { return s.workflow }},
	{"fence", "value", func(_ *encoder, s stranger) any { return fence(s.fence) }},
	{"read", "value", func(_ *encoder, s stranger) any { return b2i(s.hold >= 0) }},
}

type encoder struct {
	*selection
	report *contention.Report
	data   *data
	places map[string]int // of strings
	// strangers are places in the data's Strangers.
	strangers map[strangerKey]int
}

func encode(r *contention.Report, o Options) *data {
	s := choose(r, o.MaxHolds)
	e := &encoder{selection: s, report: r, places: map[string]int{"": 0}, strangers: map[strangerKey]int{}}
	e.data = &data{
		TraceURL: o.TraceURL, From: millis(r.From), To: millis(r.To), Read: r.Read, Totals: r.Totals, LeftOut: s.leftOut, Cut: s.cut,
		Strings: []string{""}, HoldColumns: holdColumns, WaitColumns: waitColumns, StrangerColumns: strangerColumns,
		Resources: []resource{}, Holds: [][]any{}, Waits: [][]any{}, Strangers: [][]any{},
		Owners: first(r.Owners), Types: first(r.Types), Deadlocks: first(r.Deadlocks),
		Roots: first(r.Roots), Load: []load{}, Overlong: []contention.Overlong{}, Losses: first(r.Losses),
	}
	for i := range s.resources {
		e.resource(i, 2*o.MaxHolds)
	}
	for _, i := range s.holds {
		e.data.Holds = append(e.data.Holds, row(e, holdColumns, &r.Holds[i]))
	}
	for _, i := range s.waits {
		e.data.Waits = append(e.data.Waits, row(e, waitColumns, &r.Waits[i]))
	}
	for i := range e.data.Roots {
		root := &e.data.Roots[i]
		root.Hold, root.Waiters = at(s.holdAt, root.Hold), e.waiters(root.Waiters)
	}
	for _, l := range r.Load {
		e.data.Load = append(e.data.Load, load{millis(l.At), l.Held, l.Waiting})
	}
	for _, o := range first(r.Overlong) {
		if o.Hold = at(s.holdAt, o.Hold); o.Hold >= 0 { // without its hold the page has no facts about it
			e.data.Overlong = append(e.data.Overlong, o)
		}
	}
	for i := range e.data.Losses {
		e.data.Losses[i].Hold = at(s.holdAt, e.data.Losses[i].Hold)
	}
	return e.data
}

func row[T any](e *encoder, columns []column[T], item T) []any {
	values := make([]any, len(columns))
	for i := range columns {
		values[i] = columns[i].value(e, item)
		switch v := values[i].(type) {
		case string:
			values[i] = e.str(v)
		case time.Time:
			values[i] = e.time(v)
		case float64:
			values[i] = micros(v)
		}
	}
	return values
}

func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

func micros(seconds float64) int64 { return int64(math.Round(seconds * 1e6)) }

// time returns microseconds since the report's From, -1 for a time that is not set. If clocks differ, a time before From is From.
func (e *encoder) time(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return max(0, t.Sub(e.report.From).Microseconds())
}

// str returns the place of s in the table of strings.
func (e *encoder) str(s string) int64 {
	place, ok := e.places[s]
	if !ok {
		place = len(e.data.Strings)
		e.places[s] = place
		e.data.Strings = append(e.data.Strings, s)
	}
	return int64(place)
}

// digits is a number that a script's numbers would round; a fence is one if it is too large.
type digits int64

// MarshalText writes the number in full.
func (d digits) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(d), 10), nil }

func fence(n int64) any {
	if n > 1<<53 || n < 0 {
		return digits(n)
	}
	return n
}

func (e *encoder) resource(i, maxQueue int) {
	r := resource{Resource: e.resources[i], Queue: []int64{}, Counts: e.counts[i]}
	if r.Counts.Holds+r.Counts.Waits > 0 {
		for _, q := range thin(e.resources[i].Queue, maxQueue) {
			r.Queue = append(r.Queue, e.time(q.At), int64(q.Length))
		}
	}
	e.data.Resources = append(e.data.Resources, r)
}

// steps returns name, part, start, end, trace and span of each step, and 1 if its end was not seen, one after the other.
func (e *encoder) steps(steps []contention.Step) []int64 {
	flat := make([]int64, 0, 7*len(steps))
	for _, s := range steps {
		flat = append(flat, e.str(s.Name), e.str(s.Part), e.time(s.Start), e.time(s.End), e.str(s.Trace), e.str(s.Span), b2i(s.EndUnseen))
	}
	return flat
}

// blockers returns, for each of a wait's most important blockers: the place of the hold, or -1 minus that of a stranger; from and to, since
// the wait began; 1 for named plus 2 for last; and step, trace and span.
func (e *encoder) blockers(w *contention.Wait) []int64 {
	kept := longestBlockers(w.Blockers)
	flat := make([]int64, 0, 7*len(kept))
	for i := range kept {
		b := &kept[i]
		hold := at(e.holdAt, b.Hold)
		if hold < 0 {
			hold = -1 - e.stranger(w.Resource, b)
		}
		step := b.Step
		if b.BetweenSteps {
			step = "after " + step
		}
		flat = append(flat, int64(hold), micros(b.From), micros(b.To), b2i(b.Named)+2*b2i(b.Last), e.str(step), e.str(b.Trace), e.str(b.Span))
	}
	return flat
}

// longestBlockers keeps the last blocker, whose end let the wait in, and the longest others, in the order of time.
func longestBlockers(all []contention.Blocker) []contention.Blocker {
	if len(all) <= maxBlockers {
		return all
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Or(cmp.Compare(b2i(all[y].Last), b2i(all[x].Last)), cmp.Compare(all[y].To-all[y].From, all[x].To-all[x].From))
	})
	order = order[:maxBlockers]
	slices.Sort(order)
	kept := make([]contention.Blocker, len(order))
	for i, n := range order {
		kept[i] = all[n]
	}
	return kept
}

func (e *encoder) stranger(resource string, b *contention.Blocker) int {
	key := strangerKey{resource, b.LockID, b.Fence, b.Hold}
	place, ok := e.strangers[key]
	if !ok {
		place = len(e.data.Strangers)
		e.strangers[key] = place
		e.data.Strangers = append(e.data.Strangers, row(e, strangerColumns, stranger{resource, b.LockID, b.Owner, b.Workflow, b.Fence, b.Hold}))
	}
	return place
}

func (e *encoder) waiters(list []contention.Waiter) []contention.Waiter {
	list = slices.Clone(list)
	for i := range list {
		list[i].Wait, list[i].Waiters = at(e.waitAt, list[i].Wait), e.waiters(list[i].Waiters)
	}
	return list
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// at translates a place in the report into one in the page, -1 if it has none.
func at(places []int, i int) int {
	if i < 0 || i >= len(places) {
		return -1
	}
	return places[i]
}
