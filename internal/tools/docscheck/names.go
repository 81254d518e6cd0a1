package docscheck

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	testName = regexp.MustCompile(`^(Test[A-Z]\w*)(?:/([\w/-]+))?$`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	scenario = regexp.MustCompile(`^(?:rule \d+|\w+)/\S+ .*\S$`)
	quoted   = regexp.MustCompile(`"((?:[^"\\\n]|\\.)*)"`)
)

// Tests finds named tests, subtests and scenarios that do not exist. A subtest, such as TestAll/some_case, must be a string in a Go
// file, as it is or with spaces instead of the underscores. So must a scenario, a sentence after its subject, such as
// "I1/a waiter is granted".
func Tests(t Tree) []Problem {
	functions, strs := map[string]bool{}, map[string]bool{}
	for _, name := range t.names(".go") {
		for _, m := range quoted.FindAllStringSubmatch(t.Files[name], -1) {
			strs[strings.ReplaceAll(m[1], " ", "_")] = true
		}
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range testFunc.FindAllStringSubmatch(t.Files[name], -1) {
			functions[m[1]] = true
		}
	}
	var problems []Problem
	for _, p := range t.pages() {
		for _, s := range p.code {
			m := testName.FindStringSubmatch(s.text)
			switch {
			case m == nil && scenario.MatchString(s.text) && !strs[strings.ReplaceAll(s.text, " ", "_")]:
				problems = append(problems, Problem{p.name, s.line, "there is no scenario " + s.text})
			case m == nil:
			case !functions[m[1]]:
				problems = append(problems, Problem{p.name, s.line, fmt.Sprintf("there is no test %s", m[1])})
			case m[2] != "" && !strs[m[2]] && !functions[m[2]]:
				problems = append(problems, Problem{p.name, s.line, fmt.Sprintf("%s has no subtest %s", m[1], m[2])})
			}
		}
	}
	return problems
}

var (
	makeCommand = regexp.MustCompile(`\bmake((?: +(?:-[a-z]+|[A-Z_]+=\S+|[a-z][a-z-]*))+)`)
	makeTarget  = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	variable    = regexp.MustCompile(`\b(?:LOCKSTEP|TEMPORAL|OTEL)_[A-Z_]+\b|\b[A-Z]+_FLAGS\b`)
)

// Targets finds named make targets that are not in the Makefile, and named environment variables that no file of code mentions.
func Targets(t Tree) []Problem {
	targets, variables := map[string]bool{}, map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(t.Files["Makefile"], -1) {
		targets[m[1]] = true
	}
	for _, suffix := range []string{".go", ".yml", "Makefile", ".ci/run"} {
		for _, name := range t.names(suffix) {
			for _, v := range variable.FindAllString(t.Files[name], -1) {
				variables[v] = true
			}
		}
	}
	var problems []Problem
	for _, p := range t.pages() {
		for _, c := range p.shellLines() {
			for _, m := range makeCommand.FindAllStringSubmatch(c.text, -1) {
				for word := range strings.FieldsSeq(m[1]) {
					if word[0] >= 'a' && word[0] <= 'z' && !targets[word] {
						problems = append(problems, Problem{p.name, c.line, fmt.Sprintf("there is no target %q in the Makefile", word)})
					}
				}
			}
			for _, v := range variable.FindAllString(c.text, -1) {
				if !variables[v] {
					problems = append(problems, Problem{p.name, c.line, fmt.Sprintf("nothing reads the variable %s", v)})
				}
			}
		}
	}
	return problems
}

var (
	cliCommand = regexp.MustCompile(`(?:^|[\s/])lockstep((?: +[^\s#|;&]+)+)`)
	demoFlags  = regexp.MustCompile(`\bDEMO_FLAGS="([^"]*)"`)
	helpFlag   = regexp.MustCompile(`(?m)^ *(?:-\w, )?--([a-z-]+)`)
	helpName   = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}`)
)

// Commands finds named commands and flags that lockstep does not have. help returns the help of lockstep with some arguments.
func Commands(t Tree, help func(args ...string) (string, error)) ([]Problem, error) {
	flags, err := flagsByCommand(help)
	if err != nil {
		return nil, err
	}
	var problems []Problem
	for _, p := range t.pages() {
		runsLockstep := false
		for _, c := range p.shellLines() {
			var calls [][]string
			for _, m := range cliCommand.FindAllStringSubmatch(c.text, -1) {
				calls = append(calls, strings.Fields(m[1]))
			}
			for _, m := range demoFlags.FindAllStringSubmatch(c.text, -1) {
				calls = append(calls, append([]string{"demo"}, strings.Fields(m[1])...))
			}
			for _, words := range calls {
				runsLockstep = true
				if text := unknownWord(flags, words); text != "" {
					problems = append(problems, Problem{p.name, c.line, text})
				}
			}
		}
		for _, c := range p.code {
			// On a page that runs lockstep, a flag without a command is lockstep's.
			if runsLockstep && strings.HasPrefix(c.text, "--") {
				if text := unknownWord(flags, strings.Fields(c.text)); text != "" {
					problems = append(problems, Problem{p.name, c.line, text})
				}
			}
		}
	}
	return problems, nil
}

// flagsByCommand returns the flags of each command, and all flags under "".
func flagsByCommand(help func(args ...string) (string, error)) (map[string]map[string]bool, error) {
	root, err := help()
	if err != nil {
		return nil, err
	}
	flags := map[string]map[string]bool{"": flagsOf(root)}
	for _, m := range helpName.FindAllStringSubmatch(root, -1) {
		if m[1] == "lockstep" {
			continue // the line of the usage
		}
		text, err := help(m[1])
		if err != nil {
			return nil, err
		}
		flags[m[1]] = flagsOf(text)
		maps.Copy(flags[""], flags[m[1]])
	}
	return flags, nil
}

func flagsOf(help string) map[string]bool {
	flags := map[string]bool{}
	for _, m := range helpFlag.FindAllStringSubmatch(help, -1) {
		flags[m[1]] = true
	}
	return flags
}

// unknownWord returns the problem of the words after lockstep, or "".
func unknownWord(flags map[string]map[string]bool, words []string) string {
	command := ""
	if len(words) > 0 && !strings.HasPrefix(words[0], "--") {
		if command = words[0]; flags[command] == nil {
			return fmt.Sprintf("lockstep has no command %q", command)
		}
	}
	i := slices.IndexFunc(words, func(word string) bool {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		return isFlag && !flags[command][name]
	})
	if i < 0 {
		return ""
	}
	name, _, _ := strings.Cut(words[i], "=")
	return fmt.Sprintf("%s has no flag %s", strings.TrimSpace("lockstep "+command), name)
}
