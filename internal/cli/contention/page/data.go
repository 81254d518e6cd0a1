package page

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

	Columns map[string][]column `json:"columns"`
	Holds   [][]any             `json:"holds"`
	Waits   [][]any             `json:"waits"`

	Owners     []contention.Owner    `json:"owners"`
	Roots      []contention.Root     `json:"roots"`
	Types      []contention.TypePair `json:"types"`
	Load       []load                `json:"load"`
	Overlong   []contention.Overlong `json:"overlong"`
	Losses     []contention.Loss     `json:"losses"`
	Deadlocks  []contention.Deadlock `json:"deadlocks"`
	Members    []contention.Member   `json:"members"`
	Priorities []contention.Priority `json:"priorities"`
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

// hold is a hold of the report with at most maxSteps steps; Blocks is sent as a number.
type hold struct {
	contention.Hold
	MoreSteps int `json:"moreSteps"`
}

// wait is a wait of the report with its most important blockers. Unexplained is without HandOver. References to holds are places in the
// page, notRead, or leftOut. Only blockers that are not in the page have their lock IDs, owners, workflows and fences.
type wait struct {
	contention.Wait
	MoreBlockers int `json:"moreBlockers"`
}

const (
	notRead = -1
	leftOut = -2
)

// column is the name of a value in a row, and its kind: a place in the table of strings ("string"), a time ("time"), a duration in
// microseconds ("micros"), 1 for true ("flag"), rows of "steps" or "blockers", or the value itself ("value").
type column struct {
	Name string `json:"name"`
	Is   string `json:"is"`
}

var kinds = map[reflect.Type]string{
	reflect.TypeFor[string](): "string", reflect.TypeFor[time.Time](): "time", reflect.TypeFor[float64](): "micros",
	reflect.TypeFor[bool](): "flag", reflect.TypeFor[[]contention.Step](): "steps", reflect.TypeFor[[]contention.Blocker](): "blockers",
}

// columns returns the columns of a struct's rows. Fields of embedded structs are its own.
func columns(of reflect.Type) (all []column) {
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			all = append(all, columns(f.Type)...)
		} else {
			all = append(all, column{name, cmp.Or(kinds[f.Type], "value")})
		}
	}
	return all
}

type encoder struct {
	*selection
	from   time.Time
	data   *data
	places map[string]int // of strings
}

func encode(r *contention.Report, o Options) *data {
	s := choose(r, o.MaxHolds)
	e := &encoder{selection: s, from: r.From, places: map[string]int{"": 0}}
	e.data = &data{
		TraceURL: o.TraceURL, From: millis(r.From), To: millis(r.To), Read: r.Read, Totals: r.Totals, LeftOut: s.leftOut, Cut: s.cut,
		Strings: []string{""}, Resources: []resource{}, Holds: [][]any{}, Waits: [][]any{},
		Columns: map[string][]column{
			"holds": columns(reflect.TypeFor[hold]()), "steps": columns(reflect.TypeFor[contention.Step]()),
			"waits": columns(reflect.TypeFor[wait]()), "blockers": columns(reflect.TypeFor[contention.Blocker]()),
		},
		Owners: first(r.Owners), Types: first(r.Types), Deadlocks: first(r.Deadlocks),
		Members: first(r.Members), Priorities: first(r.Priorities),
		Roots: first(r.Roots), Load: []load{}, Overlong: []contention.Overlong{}, Losses: first(r.Losses),
	}
	for i := range s.resources {
		e.resource(i, 2*o.MaxHolds)
	}
	for _, i := range s.holds {
		h := hold{Hold: r.Holds[i], MoreSteps: max(len(r.Holds[i].Steps)-maxSteps, 0)}
		h.Steps = h.Steps[:len(h.Steps)-h.MoreSteps]
		e.data.Holds = append(e.data.Holds, e.row(reflect.ValueOf(h)))
	}
	for _, i := range s.waits {
		w := wait{Wait: r.Waits[i], MoreBlockers: max(len(r.Waits[i].Blockers)-maxBlockers, 0) + r.Waits[i].Omitted}
		w.Hold, w.Unexplained, w.Blockers = at(s.holdAt, w.Hold), max(w.Unexplained-w.HandOver, 0), longestBlockers(w.Blockers)
		for j := range w.Blockers {
			b := &w.Blockers[j]
			switch h := at(s.holdAt, b.Hold); {
			case h >= 0: // whose own row has the rest
				b.Hold, b.LockID, b.Owner, b.Workflow, b.Fence = h, "", "", "", 0
			case b.Hold >= 0:
				b.Hold = leftOut
			}
		}
		e.data.Waits = append(e.data.Waits, e.row(reflect.ValueOf(w)))
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

// row returns the values of a struct's columns.
func (e *encoder) row(of reflect.Value) []any {
	var values []any
	for f, v := range of.Fields() {
		if f.Anonymous {
			values = append(values, e.row(v)...)
		} else {
			values = append(values, e.value(v))
		}
	}
	return values
}

func (e *encoder) value(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case string:
		return e.str(x)
	case time.Time:
		return e.time(x)
	case float64:
		return int64(math.Round(x * 1e6))
	case int64:
		if x > 1<<53 || x < 0 { // a script's numbers would round it
			return strconv.FormatInt(x, 10)
		}
	case bool:
		if x {
			return 1
		}
		return 0
	case []int:
		return len(x)
	case []contention.Step, []contention.Blocker:
		rows := make([][]any, v.Len())
		for i := range rows {
			rows[i] = e.row(v.Index(i))
		}
		return rows
	}
	return v.Interface()
}

func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }

// time returns microseconds since the report's From, -1 for a time that is not set. If clocks differ, a time before From is From.
func (e *encoder) time(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return max(0, t.Sub(e.from).Microseconds())
}

// str returns the place of s in the table of strings.
func (e *encoder) str(s string) int {
	place, ok := e.places[s]
	if !ok {
		place = len(e.data.Strings)
		e.places[s] = place
		e.data.Strings = append(e.data.Strings, s)
	}
	return place
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

// longestBlockers returns a copy of the last blocker, whose end let the wait in, and of the longest others, in the order of time.
func longestBlockers(all []contention.Blocker) []contention.Blocker {
	kept := slices.Clone(all)
	if len(all) <= maxBlockers {
		return kept
	}
	slices.SortStableFunc(kept, func(x, y contention.Blocker) int {
		switch {
		case x.Last:
			return -1
		case y.Last:
			return 1
		}
		return cmp.Compare(y.To-y.From, x.To-x.From)
	})
	kept = kept[:maxBlockers]
	slices.SortStableFunc(kept, func(x, y contention.Blocker) int { return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To)) })
	return kept
}

func (e *encoder) waiters(list []contention.Waiter) []contention.Waiter {
	list = slices.Clone(list)
	for i := range list {
		list[i].Wait, list[i].Waiters = at(e.waitAt, list[i].Wait), e.waiters(list[i].Waiters)
	}
	return list
}

// at translates a place in the report into one in the page.
func at(places []int, i int) int {
	if i < 0 || i >= len(places) {
		return notRead
	}
	return places[i]
}
