package contention

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
)

// ErrNothingSelected is returned if no lock span that was read is about what the options select.
var ErrNothingSelected = errors.New("nothing that was read is selected")

// CheckSelected returns an error that matches [ErrNothingSelected] if the options select nothing of the spans, although they contain lock spans.
// Call it before [Analyze].
func (s *Spans) CheckSelected(o Options) error {
	named := map[string]bool{}
	inTime := false
	for kind := range s.byKind {
		for i := range s.byKind[kind] {
			span := &s.byKind[kind][i]
			if span.resource == "" {
				continue
			}
			named[span.resource] = true
			only := analysis{opts: o}
			inTime = inTime || only.chosen(span.resource, interval{span.start, span.end})
		}
	}
	begins := func(name string) bool { return strings.HasPrefix(name, o.Resource) }
	names := slices.Sorted(maps.Keys(named))
	switch {
	case inTime || len(names) == 0:
		return nil
	case o.Resource == "" && !slices.ContainsFunc(names, func(name string) bool { return !inspect.Internal(name) }):
		return fmt.Errorf("%w: all lock spans are about locks of Lockstep's own, which --resource selects: no workflow has used a lock", ErrNothingSelected)
	case slices.ContainsFunc(names, begins):
		return fmt.Errorf("%w: no lock span is of the time between --since and --until", ErrNothingSelected)
	case o.Resource == "":
		return nil
	}
	text := "near that is "
	near := nearest(o.Resource, names)
	if len(near) == 0 {
		text, near = "there is ", names[:min(len(names), mostNear)]
	}
	for i, name := range near {
		near[i] = strconv.Quote(name)
	}
	return fmt.Errorf("%w: no span names a resource that begins with %q; %s%s", ErrNothingSelected, o.Resource, text, strings.Join(near, ", "))
}

const (
	// mostNear bounds the names that are listed, and mostCompared those that are compared with the one that was asked for.
	mostNear     = 5
	mostCompared = 10_000
)

// nearest returns the names whose beginnings differ from a text in few letters, or that contain it. The nearest comes first.
func nearest(text string, names []string) []string {
	type near struct {
		name     string
		distance int
	}
	var all []near
	wanted := strings.ToLower(text)
	for _, name := range names[:min(len(names), mostCompared)] {
		d := distance([]rune(wanted), []rune(strings.ToLower(name)))
		if strings.Contains(strings.ToLower(name), wanted) {
			d = 0
		}
		if 3*d <= len(wanted) {
			all = append(all, near{name, d})
		}
	}
	slices.SortFunc(all, func(a, b near) int { return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name)) })
	var out []string
	for _, n := range all[:min(len(all), mostNear)] {
		out = append(out, n.name)
	}
	return out
}

// distance returns the number of letters to insert, to remove or to change in a text so that a name begins with it.
func distance(text, name []rune) int {
	row := make([]int, len(name)+1) // of the text so far, for each beginning of the name
	for j := range row {
		row[j] = j
	}
	for i, letter := range text {
		diagonal := row[0]
		row[0] = i + 1
		for j, other := range name {
			changed := diagonal
			if letter != other {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return slices.Min(row)
}
