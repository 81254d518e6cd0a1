package scenarios

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

// chapters are the transcripts, in the order of their names.
//
//go:embed testdata/*.txt
var chapters embed.FS

// Scenario is an example of one rule: a transcript of operations and of the answer to each.
type Scenario struct {
	// Name begins with the operation, the state or the invariant of the scenario.
	Name  string
	steps []*step
}

// step is an operation, or a loop over operations.
type step struct {
	// at is the file and the line.
	at, text string
	// want are the expected lines of the answer.
	want []string
}

// T reports that a scenario has failed. A *testing.T is one, and lockstep verify has one of its own, so
// that no command contains package testing.
type T interface {
	// Helper marks the calling function as a helper.
	Helper()
	// Fatalf records a failure and ends the goroutine that calls it.
	Fatalf(format string, args ...any)
}

// All returns all scenarios.
func All() (all []Scenario) {
	for _, name := range chapterNames() {
		all = append(all, parse(name, chapter(name))...)
	}
	return all
}

func chapterNames() (names []string) {
	entries, err := chapters.ReadDir("testdata")
	if err != nil {
		panic(err) // the files are built in
	}
	for _, e := range entries {
		names = append(names, path.Join("testdata", e.Name()))
	}
	return names
}

func chapter(name string) string {
	text, err := chapters.ReadFile(name)
	if err != nil {
		panic(err) // the files are built in
	}
	return string(text)
}

// parse returns the scenarios of a chapter.
func parse(name, text string) (all []Scenario) {
	for i, line := range strings.Split(text, "\n") {
		title, begins := strings.CutPrefix(line, "scenario ")
		answer, answers := strings.CutPrefix(line, "  ")
		switch {
		case begins:
			all = append(all, Scenario{Name: title})
		case line == "" || line[0] == '#':
		case answers:
			steps := all[len(all)-1].steps
			steps[len(steps)-1].want = append(steps[len(steps)-1].want, answer)
		default:
			s := &all[len(all)-1]
			s.steps = append(s.steps, &step{at: fmt.Sprint(name, ":", i+1), text: line})
		}
	}
	return all
}

// Run plays the scenario on a resource that has no document yet, and expects the answers of the transcript.
func (s Scenario) Run(t T, h Harness, resource string) {
	t.Helper()
	p := &player{h: h, base: resource, resource: resource}
	for _, step := range s.steps {
		got, err := p.play(step.text)
		if err != nil {
			t.Fatalf("%s: %s: %v", step.at, step.text, err)
		}
		if !slices.Equal(got, step.want) {
			t.Fatalf("%s: %s\nexpected: %s\ngot:      %s", step.at, step.text, strings.Join(step.want, "\n"), strings.Join(got, "\n"))
		}
	}
}

// rewrite returns the text of a chapter with the answers that the rules give now.
func rewrite(name, text string) (string, error) {
	answers := map[string][]string{}
	for _, s := range parse(name, text) {
		p := &player{h: NewRules(), base: "r", resource: "r"}
		for _, step := range s.steps {
			got, err := p.play(step.text)
			if err != nil {
				return "", fmt.Errorf("%s: %s: %w", step.at, step.text, err)
			}
			answers[step.at] = got
		}
	}
	var out []string
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		out = append(out, line)
		for _, answer := range answers[fmt.Sprint(name, ":", i+1)] {
			out = append(out, "  "+answer)
		}
	}
	return strings.Join(out, "\n"), nil
}
