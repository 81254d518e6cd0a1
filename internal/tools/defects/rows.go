package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The records of the defects. A line "# …" begins a kind of defects. A record is a paragraph of three lines: what went wrong; what found it, what
// finds it now, and perhaps "slow"; the command. A row's number is the position of its record.
//
//go:embed defects.txt
var records string

// others is the kind of the defects of other libraries, which are counted apart.
const others = "Defects of others"

// row is one defect.
type row struct {
	number int
	kind   string
	defect string
	// foundBy and foundNow name what found the defect first, and the cheapest check that finds it now.
	foundBy, foundNow string
	// slow is set if the command takes over a minute.
	slow bool
	// command is the command, for bash. pattern is the argument of -run of a go test, and mutant the text of a mutant; else they are empty.
	command, pattern, mutant string
}

var (
	found = regexp.MustCompile(`^([^;|]+); ([^;|]+?)(; slow)?$`)
	// known has the forms of commands. Nothing in them is special to bash, except quotes.
	known = regexp.MustCompile(`^(?:go test \./\S+ -run (?:'(Test[^']*)'|(Test[\w/]*))(?: -mutants)?|go run \./internal/proof/mutants "([^-"$` + "`" + `\\][^"$` + "`" + `\\]*)"|make [a-z-]+(?: [A-Z]+=\w+)*)$`)
)

// parse returns the rows of the records.
func parse(text string) (rows []row, err error) {
	var errs []error
	kind := ""
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if head, ok := strings.CutPrefix(paragraph, "# "); ok {
			kind = head
			continue
		}
		r, err := parseRow(paragraph)
		r.number, r.kind = len(rows)+1, kind
		if err != nil {
			errs = append(errs, fmt.Errorf("row %d: %w", r.number, err))
		}
		rows = append(rows, r)
	}
	return rows, errors.Join(errs...)
}

func parseRow(paragraph string) (r row, err error) {
	lines := strings.Split(paragraph, "\n")
	if len(lines) != 3 || strings.Contains(lines[0], "|") {
		return r, errors.New("a record has three lines, the first without a |")
	}
	m := found.FindStringSubmatch(lines[1])
	if m == nil {
		return r, errors.New("the second line is: FOUND BY; FOUND NOW BY, and perhaps ; slow")
	}
	c := known.FindStringSubmatch(lines[2])
	if c == nil {
		return r, errors.New(`a command is go test PACKAGE -run PATTERN, go run ./internal/proof/mutants "TEXT", or make TARGET`)
	}
	return row{
		defect: lines[0], foundBy: m[1], foundNow: m[2], slow: m[3] != "", command: lines[2], pattern: c[1] + c[2], mutant: c[3],
	}, nil
}

// counts returns two lists in Markdown: the number of defects in Lockstep of each kind, and by what found them.
func counts(rows []row) string {
	kinds, finders := map[string]int{}, map[string]int{}
	for _, r := range rows {
		if r.kind != others {
			kinds[r.kind]++
			finders[r.foundBy]++
		}
	}
	list := func(head string, numbers map[string]int) string {
		var b strings.Builder
		b.WriteString(head + ":\n\n")
		names := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
			return cmp.Or(numbers[b]-numbers[a], strings.Compare(a, b))
		})
		for _, name := range names {
			fmt.Fprintf(&b, "- %s: %d\n", name, numbers[name])
		}
		return b.String()
	}
	return list("By kind", kinds) + "\n" + list("By what found them", finders)
}

// list returns all rows as tables in Markdown, one for each kind.
func list(rows []row) string {
	var b strings.Builder
	kind := ""
	for _, r := range rows {
		if r.kind != kind {
			kind = r.kind
			fmt.Fprintf(&b, "\n## %s\n\n| # | what went wrong | found by | found now by | command |\n| --- | --- | --- | --- | --- |\n", kind)
		}
		slow := ""
		if r.slow {
			slow = " slow"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | `%s`%s |\n", r.number, r.defect, r.foundBy, r.foundNow, r.command, slow)
	}
	return b.String()
}
