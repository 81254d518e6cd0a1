package docscheck

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// Help answers what `lockstep ARGS --help` prints.
type Help func(ctx context.Context, args ...string) (string, error)

// Binary is the Help of a compiled lockstep.
func Binary(path string) Help {
	return func(ctx context.Context, args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, path, append(args, "--help")...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("lockstep %s --help: %w\n%s", strings.Join(args, " "), err, out)
		}
		return string(out), nil
	}
}

var (
	cliCommand = regexp.MustCompile(`(?:^|[\s/])lockstep((?: +[^\s#|;&]+)+)`)
	demoFlags  = regexp.MustCompile(`\bDEMO_FLAGS="([^"]*)"`)
	helpFlag   = regexp.MustCompile(`(?m)^ *(?:-\w, )?--([a-z-]+)`)
	helpName   = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}`)
)

// Commands looks for commands and flags of lockstep that the tree's Markdown files name and lockstep does not have.
func Commands(ctx context.Context, t Tree, help Help) ([]Problem, error) {
	root, err := help(ctx)
	if err != nil {
		return nil, err
	}
	// The flags of each command; those of all of them under "".
	flags := map[string]map[string]bool{"": flagsOf(root)}
	for _, m := range helpName.FindAllStringSubmatch(root, -1) {
		if m[1] == "lockstep" {
			continue // a line of usage
		}
		text, err := help(ctx, m[1])
		if err != nil {
			return nil, err
		}
		flags[m[1]] = flagsOf(text)
		for name := range flags[m[1]] {
			flags[""][name] = true
		}
	}
	var problems []Problem
	err = t.each(".md", func(name, text string) error {
		page := parsePage(name, text)
		runs := false
		for _, c := range page.commands() {
			found := invocations(c.text)
			runs = runs || len(found) > 0
			for _, words := range found {
				if text := unknown(flags, words); text != "" {
					problems = append(problems, Problem{name, c.line, text})
				}
			}
		}
		for _, c := range page.spans {
			// A flag alone is lockstep's on a page that runs lockstep.
			if text := unknown(flags, strings.Fields(c.text)); runs && strings.HasPrefix(c.text, "--") && text != "" {
				problems = append(problems, Problem{name, c.line, text})
			}
		}
		return nil
	})
	return problems, err
}

// invocations are the words after lockstep, wherever a line of code runs it.
func invocations(line string) [][]string {
	var all [][]string
	for _, m := range cliCommand.FindAllStringSubmatch(line, -1) {
		all = append(all, strings.Fields(m[1]))
	}
	for _, m := range demoFlags.FindAllStringSubmatch(line, -1) {
		all = append(all, append([]string{"demo"}, strings.Fields(m[1])...))
	}
	return all
}

func unknown(flags map[string]map[string]bool, words []string) string {
	command := ""
	for i, word := range words {
		name, isFlag := strings.CutPrefix(word, "--")
		switch {
		case isFlag:
			if name, _, _ = strings.Cut(name, "="); !flags[command][name] {
				return fmt.Sprintf("%s has no flag --%s", strings.TrimSpace("lockstep "+command), name)
			}
		case i == 0:
			command = word
			if flags[command] == nil {
				return fmt.Sprintf("lockstep has no command %q", command)
			}
		}
	}
	return ""
}

func flagsOf(help string) map[string]bool {
	flags := map[string]bool{}
	for _, m := range helpFlag.FindAllStringSubmatch(help, -1) {
		flags[m[1]] = true
	}
	return flags
}
