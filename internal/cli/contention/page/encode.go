package page

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// document is the data of a page, as assets/data.js reads it. Holds and waits, which are many, are rows of numbers and of places in a
// table of strings; what is few is as in the report's own JSON.
type document struct {
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

	HoldColumns []column `json:"holdColumns"`
	Holds       [][]any  `json:"holds"`
	WaitColumns []column `json:"waitColumns"`
	Waits       [][]any  `json:"waits"`
	// Strangers are holds that blocked and are not in the page: not read, or left out.
	StrangerColumns []column `json:"strangerColumns"`
	Strangers       [][]any  `json:"strangers"`

	Owners    []contention.Owner    `json:"owners"`
	Roots     []contention.Root     `json:"roots"`
	Types     []contention.TypePair `json:"types"`
	Load      []loadAt              `json:"load"`
	Overlong  []contention.Overlong `json:"overlong"`
	Losses    []contention.Loss     `json:"losses"`
	Deadlocks []contention.Deadlock `json:"deadlocks"`
}

// column is one of a row: its name, and what its number is: "string", a place in the table; "time"; "micros", a duration; or "value", itself.
type column struct {
	Name string `json:"name"`
	Is   string `json:"is"`
}

// resource is one of the report, with its queue as pairs of time and length.
type resource struct {
	contention.Resource
	Queue  []int64 `json:"queue"`
	Counts counts  `json:"counts"`
}

// loadAt is one of the report's, with its time in milliseconds since 1970.
type loadAt struct {
	At      float64 `json:"at"`
	Held    float64 `json:"held"`
	Waiting float64 `json:"waiting"`
}

// unknownTime is a time that is not set.
const unknownTime = -1

type encoder struct {
	report *contention.Report
	part   *part
	doc    *document
	places map[string]int
	// strangers are places in the document's Strangers.
	strangers map[strangerKey]int
}

type strangerKey struct {
	resource, lockID string
	fence            int64
	hold             int
}

func encode(r *contention.Report, o Options) *document {
	p := bound(r, o.MaxHolds)
	e := &encoder{report: r, part: p, places: map[string]int{"": 0}, strangers: map[strangerKey]int{}}
	e.doc = &document{
		TraceURL: o.TraceURL, From: millis(r.From), To: millis(r.To), Read: r.Read, Totals: r.Totals, LeftOut: append([]string{}, p.leftOut...), Cut: append([]string{}, p.cut...),
		Strings: []string{""}, HoldColumns: holdColumns(), WaitColumns: waitColumns(), StrangerColumns: strangerColumns(),
		Holds: [][]any{}, Waits: [][]any{}, Strangers: [][]any{},
		Types: append([]contention.TypePair{}, first(r.Types)...), Load: []loadAt{},
		Resources: []resource{}, Owners: append([]contention.Owner{}, first(r.Owners)...), Deadlocks: append([]contention.Deadlock{}, first(r.Deadlocks)...),
	}
	for i := range p.resources {
		e.resource(i, 2*o.MaxHolds)
	}
	for _, i := range p.holds {
		e.doc.Holds = append(e.doc.Holds, e.hold(&r.Holds[i]))
	}
	for _, i := range p.waits {
		e.doc.Waits = append(e.doc.Waits, e.wait(&r.Waits[i]))
	}
	e.lists()
	return e.doc
}

func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

// str is the place of s in the table of strings.
func (e *encoder) str(s string) int {
	at, ok := e.places[s]
	if !ok {
		at = len(e.doc.Strings)
		e.places[s] = at
		e.doc.Strings = append(e.doc.Strings, s)
	}
	return at
}

func (e *encoder) time(t time.Time) int64 {
	if t.IsZero() {
		return unknownTime
	}
	// Nothing is before From, but for clocks that disagree.
	return max(0, t.Sub(e.report.From).Microseconds())
}

func micros(seconds float64) int64 { return int64(math.Round(seconds * 1e6)) }

// fence is a number, or its digits where a script's numbers would round it.
func fence(n int64) any {
	if n > 1<<53 || n < 0 {
		return strconv.FormatInt(n, 10)
	}
	return n
}

func (e *encoder) resource(i, maxQueue int) {
	res := resource{Resource: e.part.resources[i], Queue: []int64{}, Counts: e.part.counts[i]}
	if res.Counts.Holds+res.Counts.Waits > 0 {
		for _, q := range thin(e.part.resources[i].Queue, maxQueue) {
			res.Queue = append(res.Queue, e.time(q.At), int64(q.Length))
		}
	}
	e.doc.Resources = append(e.doc.Resources, res)
}

func holdColumns() []column {
	return []column{
		{"resource", "value"}, {"lockId", "string"}, {"owner", "string"}, {"workflow", "string"}, {"run", "string"}, {"mode", "string"},
		{"fence", "value"}, {"start", "time"}, {"end", "time"}, {"outcome", "string"}, {"reason", "string"}, {"endedBy", "string"},
		{"expiredAt", "time"}, {"host", "string"}, {"trace", "string"}, {"span", "string"}, {"blocked", "micros"}, {"blocks", "value"},
		{"steps", "value"}, {"moreSteps", "value"}, {"workflowType", "string"}, {"workerDied", "value"},
	}
}

func (e *encoder) hold(h *contention.Hold) []any {
	steps := h.Steps[:min(len(h.Steps), maxSteps)]
	return []any{
		e.part.index[h.Resource], e.str(h.LockID), e.str(h.Owner), e.str(h.Workflow), e.str(h.Run), e.str(h.Mode),
		fence(h.Fence), e.time(h.Start), e.time(h.End), e.str(h.Outcome), e.str(h.Reason), e.str(h.EndedBy),
		e.time(h.ExpiredAt), e.str(h.Host), e.str(h.Trace), e.str(h.Span), micros(h.Blocked), len(h.Blocks),
		e.steps(steps), len(h.Steps) - len(steps), e.str(h.WorkflowType), h.WorkerDied,
	}
}

// steps are name, part, start, end, trace and span of each, and 1 if its end was not seen, one after the other.
func (e *encoder) steps(steps []contention.Step) []int64 {
	flat := make([]int64, 0, 7*len(steps))
	for _, s := range steps {
		flat = append(flat, int64(e.str(s.Name)), int64(e.str(s.Part)), e.time(s.Start), e.time(s.End), int64(e.str(s.Trace)), int64(e.str(s.Span)), b2i(s.EndUnseen))
	}
	return flat
}

func waitColumns() []column {
	return []column{
		{"resource", "value"}, {"lockId", "string"}, {"owner", "string"}, {"workflow", "string"}, {"run", "string"}, {"mode", "string"},
		{"part", "string"}, {"step", "string"}, {"start", "time"}, {"end", "time"}, {"outcome", "string"}, {"position", "value"},
		{"trace", "string"}, {"span", "string"}, {"hold", "value"}, {"unexplained", "micros"}, {"handOver", "micros"}, {"blockers", "value"}, {"moreBlockers", "value"},
		{"workflowType", "string"},
	}
}

func (e *encoder) wait(w *contention.Wait) []any {
	blockers := longestBlockers(w.Blockers)
	flat := make([]int64, 0, 7*len(blockers))
	for _, b := range blockers {
		flat = append(flat, e.blocker(w.Resource, b)...)
	}
	return []any{
		e.part.index[w.Resource], e.str(w.LockID), e.str(w.Owner), e.str(w.Workflow), e.str(w.Run), e.str(w.Mode),
		e.str(w.Part), e.str(w.Step), e.time(w.Start), e.time(w.End), e.str(w.Outcome), w.Position,
		e.str(w.Trace), e.str(w.Span), at(e.part.holdAt, w.Hold), micros(max(w.Unexplained-w.HandOver, 0)), micros(w.HandOver), flat, len(w.Blockers) - len(blockers) + w.Omitted,
		e.str(w.WorkflowType),
	}
}

// longestBlockers keeps the order of time, and always the last, whose end let the wait in.
func longestBlockers(all []contention.Blocker) []contention.Blocker {
	if len(all) <= maxBlockers {
		return all
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c := cmp.Compare(b2i(all[b].Last), b2i(all[a].Last)); c != 0 {
			return c
		}
		return cmp.Compare(all[b].To-all[b].From, all[a].To-all[a].From)
	})
	order = order[:maxBlockers]
	slices.Sort(order)
	kept := make([]contention.Blocker, len(order))
	for i, n := range order {
		kept[i] = all[n]
	}
	return kept
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// stepOf says which step was in the way, or after which the lock stood.
func stepOf(b contention.Blocker) string {
	if b.BetweenSteps {
		return "after " + b.Step
	}
	return b.Step
}

// blocker is the hold's place, or -1 minus that of a stranger; from and to since the wait began; 1 for named plus 2 for last; and step,
// trace and span.
func (e *encoder) blocker(resource string, b contention.Blocker) []int64 {
	hold := at(e.part.holdAt, b.Hold)
	if hold < 0 {
		hold = -1 - e.stranger(resource, b)
	}
	return []int64{
		int64(hold), micros(b.From), micros(b.To), b2i(b.Named) + 2*b2i(b.Last), int64(e.str(stepOf(b))), int64(e.str(b.Trace)), int64(e.str(b.Span)),
	}
}

func strangerColumns() []column {
	return []column{
		{"resource", "value"}, {"lockId", "string"}, {"owner", "string"}, {"workflow", "string"}, {"fence", "value"}, {"read", "value"},
	}
}

func (e *encoder) stranger(resource string, b contention.Blocker) int {
	key := strangerKey{resource: resource, lockID: b.LockID, fence: b.Fence, hold: b.Hold}
	place, ok := e.strangers[key]
	if !ok {
		place = len(e.doc.Strangers)
		e.strangers[key] = place
		e.doc.Strangers = append(e.doc.Strangers, []any{
			e.part.index[resource], e.str(b.LockID), e.str(b.Owner), e.str(b.Workflow), fence(b.Fence), b2i(b.Hold >= 0),
		})
	}
	return place
}

// at translates an index of the report into one of the page, -1 if it has none.
func at(places []int, i int) int {
	if i < 0 || i >= len(places) {
		return -1
	}
	return places[i]
}
