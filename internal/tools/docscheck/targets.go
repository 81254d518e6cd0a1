package docscheck

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	makeCommand = regexp.MustCompile(`\bmake((?: +(?:-[a-z]+|[A-Z_]+=\S+|[a-z][a-z-]*))+)`)
	makeTarget  = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	variable    = regexp.MustCompile(`\b(?:LOCKSTEP|TEMPORAL|OTEL)_[A-Z_]+\b|\b[A-Z]+_FLAGS\b`)
)

// Targets looks for `make` targets, and variables of the environment, that the tree's Markdown files name and no file
// has made or reads.
func Targets(t Tree) ([]Problem, error) {
	makefile, err := t.read("Makefile")
	if err != nil {
		return nil, err
	}
	targets, variables := map[string]bool{}, map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(makefile, -1) {
		targets[m[1]] = true
	}
	for _, suffix := range []string{".go", ".yml", "Makefile", ".ci/run"} {
		if err := t.each(suffix, func(_, text string) error {
			for _, name := range variable.FindAllString(text, -1) {
				variables[name] = true
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	var problems []Problem
	err = t.each(".md", func(name, text string) error {
		page := parsePage(name, text)
		for _, c := range page.commands() {
			for _, m := range makeCommand.FindAllStringSubmatch(c.text, -1) {
				for word := range strings.FieldsSeq(m[1]) {
					if word[0] >= 'a' && word[0] <= 'z' && !targets[word] {
						problems = append(problems, Problem{name, c.line, fmt.Sprintf("there is no target %q in the Makefile", word)})
					}
				}
			}
			for _, v := range variable.FindAllString(c.text, -1) {
				if !variables[v] {
					problems = append(problems, Problem{name, c.line, fmt.Sprintf("nothing reads the variable %s", v)})
				}
			}
		}
		return nil
	})
	return problems, err
}
