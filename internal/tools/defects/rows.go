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
	// text is the command, and words are its words.
	text  string
	words []string
}

// isTest reports whether the command is go test.
func (r row) isTest() bool { return r.words[0] == "go" && r.words[1] == "test" }

// pattern returns the argument of -run of a go test.
func (r row) pattern() string { return r.words[4] }

var (
	found    = regexp.MustCompile(`^([^;|]+); ([^;|]+?)(; slow)?$`)
	variable = regexp.MustCompile(`^[A-Z]+=\w+$`)
	target   = regexp.MustCompile(`^[a-z-]+$`)
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
	r = row{defect: lines[0], foundBy: m[1], foundNow: m[2], slow: m[3] != "", text: lines[2]}
	if r.words, err = split(r.text); err != nil {
		return r, err
	}
	if !isKnown(r.words) {
		return r, errors.New("a command is go test PACKAGE -run PATTERN, go run ./internal/proof/mutants TEXT, or make TARGET")
	}
	return r, nil
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
		fmt.Fprintf(&b, "| %d | %s | %s | %s | `%s`%s |\n", r.number, r.defect, r.foundBy, r.foundNow, r.text, slow)
	}
	return b.String()
}

// isKnown reports whether a command has one of the known forms.
func isKnown(words []string) bool {
	switch {
	case len(words) < 2:
		return false
	case words[0] == "make":
		for _, w := range words[2:] {
			if !variable.MatchString(w) {
				return false
			}
		}
		return target.MatchString(words[1])
	case words[0] != "go":
		return false
	case words[1] == "run":
		return len(words) == 4 && words[2] == "./internal/proof/mutants" && !strings.HasPrefix(words[3], "-")
	case words[1] == "test":
		mutants := len(words) == 6 && words[5] == "-mutants"
		return (len(words) == 5 || mutants) && strings.HasPrefix(words[2], "./") && words[3] == "-run" && strings.HasPrefix(words[4], "Test")
	}
	return false
}

// split returns the words of a shell command. Quotes of both kinds group words; nothing else is special.
func split(text string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	open := false
	for _, c := range text {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, open = c, true
		case quote == 0 && c == ' ':
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(c)
			open = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed: %s", text)
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}
