package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// row is a row of docs/defects.md.
type row struct {
	number int
	// slow is set if the row is marked so.
	slow bool
	// text is the command, and words are its words.
	text  string
	words []string
}

// isTest reports whether the command is go test.
func (r row) isTest() bool { return r.words[0] == "go" && r.words[1] == "test" }

// pattern returns the argument of -run of a go test.
func (r row) pattern() string { return r.words[4] }

// columns is the number of cells in a row: number, what went wrong, who found it, what finds it now, command.
const columns = 5

var (
	numbered = regexp.MustCompile(`^\| *(\d+) *\|`)
	command  = regexp.MustCompile("^`([^`]+)`( slow)?$")
	variable = regexp.MustCompile(`^[A-Z]+=\w+$`)
	target   = regexp.MustCompile(`^[a-z-]+$`)
)

// parse returns the rows of the page. Each must have a number of its own, in order, and a command of a known form.
func parse(text string) (rows []row, err error) {
	var errs []error
	for i, line := range strings.Split(text, "\n") {
		m := numbered.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		r, err := parseRow(line)
		if err == nil && r.number != len(rows)+1 {
			err = fmt.Errorf("row %d follows row %d", r.number, len(rows))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", pagePath, i+1, err))
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		errs = append(errs, fmt.Errorf("%s has no rows", pagePath))
	}
	return rows, errors.Join(errs...)
}

func parseRow(line string) (r row, err error) {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	if r.number, err = strconv.Atoi(cells[0]); err != nil {
		return r, err
	}
	m := command.FindStringSubmatch(cells[len(cells)-1])
	if len(cells) != columns || m == nil {
		return r, fmt.Errorf("row %d needs %d cells, and a command in the last one", r.number, columns)
	}
	r.text, r.slow = m[1], m[2] != ""
	if r.words, err = split(r.text); err != nil {
		return r, fmt.Errorf("row %d: %w", r.number, err)
	}
	if !isKnown(r.words) {
		return r, fmt.Errorf("row %d: a command is go test PACKAGE -run PATTERN, go run ./internal/proof/mutants TEXT, or make TARGET", r.number)
	}
	return r, nil
}

// isKnown reports whether a command has one of the forms that the page may contain.
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
