package docscheck

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	testName = regexp.MustCompile(`^(Test[A-Z]\w*)(?:/([\w/-]+))?$`)
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	scenario = regexp.MustCompile(`^(?:rule \d+|\w+)/\S+ .*\S$`)
	testRun  = regexp.MustCompile(`^go test \./(\S+) -run '?(Test\w+)`)
	// title is the first line of a scenario in a transcript.
	title  = regexp.MustCompile(`(?m)^scenario (.+)$`)
	quoted = regexp.MustCompile(`"((?:[^"\\\n]|\\.)*)"`)
)

// Tests finds named tests, subtests and scenarios that do not exist. A subtest, such as TestAll/some_case, must be a string in a Go
// file, as it is or with spaces instead of the underscores. A scenario, a sentence after its subject, such as
// "I1/a waiter is granted", must be such a string too, or the title of a transcript. The test in a command such as
// go test ./worker -run TestAll must be in that package.
func Tests(t Tree) []Problem {
	functions, strs, inPackage := set{}, set{}, set{}
	for _, name := range t.names(".go") {
		for text := range (set{}).add(quoted, t.Files[name]) {
			strs[strings.ReplaceAll(text, " ", "_")] = true
		}
		if strings.HasSuffix(name, "_test.go") {
			functions.add(testFunc, t.Files[name])
			for function := range (set{}).add(testFunc, t.Files[name]) {
				inPackage[path.Dir(name)+" "+function] = true
			}
		}
	}
	for _, name := range t.names(".txt") {
		for text := range (set{}).add(title, t.Files[name]) {
			strs[strings.ReplaceAll(text, " ", "_")] = true
		}
	}
	return t.pages(func(p page, report reporter) {
		for _, s := range p.code {
			m, run := testName.FindStringSubmatch(s.text), testRun.FindStringSubmatch(s.text)
			switch {
			case run != nil && !inPackage[run[1]+" "+run[2]]:
				report(s.line, "package %s has no test %s", run[1], run[2])
			case m == nil && scenario.MatchString(s.text) && !strs[strings.ReplaceAll(s.text, " ", "_")]:
				report(s.line, "there is no scenario %s", s.text)
			case m == nil:
			case !functions[m[1]]:
				report(s.line, "there is no test %s", m[1])
			case m[2] != "" && !strs[m[2]] && !functions[m[2]]:
				report(s.line, "%s has no subtest %s", m[1], m[2])
			}
		}
	})
}

var (
	makeCommand = regexp.MustCompile(`\bmake((?: +(?:-[a-z]+|[A-Z_]+=\S+|[a-z][a-z-]*))+)`)
	makeTarget  = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	variable    = regexp.MustCompile(`\b((?:LOCKSTEP|TEMPORAL|OTEL)_[A-Z_]+|[A-Z]+_FLAGS)\b`)
)

// Targets finds named make targets that are not in the Makefile, and named environment variables that no file of code mentions.
func Targets(t Tree) []Problem {
	targets, variables := set{}.add(makeTarget, t.Files["Makefile"]), set{}
	for _, suffix := range []string{".go", ".yml", "Makefile", ".ci/run"} {
		for _, name := range t.names(suffix) {
			variables.add(variable, t.Files[name])
		}
	}
	return t.pages(func(p page, report reporter) {
		for _, c := range p.shellLines() {
			for _, m := range makeCommand.FindAllStringSubmatch(c.text, -1) {
				for word := range strings.FieldsSeq(m[1]) {
					if word[0] >= 'a' && word[0] <= 'z' && !targets[word] {
						report(c.line, "there is no target %q in the Makefile", word)
					}
				}
			}
			for _, v := range variable.FindAllString(c.text, -1) {
				if !variables[v] {
					report(c.line, "nothing reads the variable %s", v)
				}
			}
		}
	})
}

var (
	cliCommand = regexp.MustCompile(`(?:^|[\s/])lockstep((?: +[^\s#|;&]+)+)`)
	demoFlags  = regexp.MustCompile(`\bDEMO_FLAGS="([^"]*)"`)
	helpFlag   = regexp.MustCompile(`(?m)^ *(?:-\w, )?--([a-z-]+)`)
	helpName   = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}`)
)

// Commands finds named commands and flags that lockstep does not have. help returns the help of lockstep with some arguments.
func Commands(t Tree, help func(args ...string) (string, error)) ([]Problem, error) {
	root, err := help()
	if err != nil {
		return nil, err
	}
	// The flags of each command, and all flags under "".
	all := set{}.add(helpFlag, root)
	flags := map[string]set{"": all}
	for _, m := range helpName.FindAllStringSubmatch(root, -1) {
		if m[1] == "lockstep" {
			continue // the line of the usage
		}
		text, err := help(m[1])
		if err != nil {
			return nil, err
		}
		flags[m[1]] = set{}.add(helpFlag, text)
		all.add(helpFlag, text)
	}
	return t.pages(func(p page, report reporter) {
		runsLockstep := false
		for _, c := range p.shellLines() {
			if strings.HasPrefix(c.text, "go test ") { // ./cmd/lockstep is its package
				continue
			}
			for _, m := range cliCommand.FindAllStringSubmatch(c.text, -1) {
				runsLockstep = true
				checkWords(flags, strings.Fields(m[1]), c.line, report)
			}
			for _, m := range demoFlags.FindAllStringSubmatch(c.text, -1) {
				runsLockstep = true
				checkWords(flags, append([]string{"demo"}, strings.Fields(m[1])...), c.line, report)
			}
		}
		for _, c := range p.code {
			// On a page that runs lockstep, a flag without a command is lockstep's.
			if runsLockstep && strings.HasPrefix(c.text, "--") {
				checkWords(flags, strings.Fields(c.text), c.line, report)
			}
		}
	}), nil
}

// checkWords checks the words after lockstep.
func checkWords(flags map[string]set, words []string, line int, report reporter) {
	command := ""
	if len(words) > 0 && !strings.HasPrefix(words[0], "--") {
		if command = words[0]; flags[command] == nil {
			report(line, "lockstep has no command %q", command)
			return
		}
	}
	name := func(word string) string {
		name, _, _ := strings.Cut(word, "=")
		return name
	}
	i := slices.IndexFunc(words, func(word string) bool {
		flag, isFlag := strings.CutPrefix(name(word), "--")
		return isFlag && !flags[command][flag]
	})
	if i >= 0 {
		report(line, "%s has no flag %s", strings.TrimSpace("lockstep "+command), name(words[i]))
	}
}
