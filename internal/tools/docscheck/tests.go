package docscheck

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	testName = regexp.MustCompile(`^(Test[A-Z]\w*)(?:/([\w/-]+))?$`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	scenario = regexp.MustCompile(`^(?:rule \d+|\w+)/\S+ .*\S$`)
	quoted   = regexp.MustCompile(`"((?:[^"\\\n]|\\.)*)"`)
)

// Tests looks for tests that the tree's Markdown files name and that do not exist. A subtest, TestAll/some_case, must be
// a string somewhere in the tree's Go files, with spaces for the underscores or as it is; and so must a scenario, which
// is a sentence after what it is about: I1/nobody is let in.
func Tests(t Tree) ([]Problem, error) {
	functions, strs := map[string]bool{}, map[string]bool{}
	if err := t.each(".go", func(name, text string) error {
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				functions[m[1]] = true
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			strs[strings.ReplaceAll(m[1], " ", "_")] = true
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var problems []Problem
	err := t.each(".md", func(name, text string) error {
		page := parsePage(name, text)
		for _, s := range page.spans {
			m := testName.FindStringSubmatch(s.text)
			switch {
			case m == nil && scenario.MatchString(s.text) && !strs[strings.ReplaceAll(s.text, " ", "_")]:
				problems = append(problems, Problem{name, s.line, "there is no scenario " + s.text})
			case m == nil:
			case !functions[m[1]]:
				problems = append(problems, Problem{name, s.line, fmt.Sprintf("there is no test %s", m[1])})
			case m[2] != "" && !strs[m[2]] && !functions[m[2]]:
				problems = append(problems, Problem{name, s.line, fmt.Sprintf("%s has no subtest %s", m[1], m[2])})
			}
		}
		return nil
	})
	return problems, err
}
