package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

const enginePage = "internal/proof/simulation/MUTANTS.md"

var seedInRow = regexp.MustCompile(`seed (\d+)`)

// show puts the defect back whose description contains a text, and prints what finds it. It returns an error if nothing does.
func show(text string) error {
	m, err := named(text)
	if err != nil {
		return err
	}
	fmt.Print("put back: ")
	if err := m.print(); err != nil {
		return err
	}
	parent, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(parent)
	b, err := m.putBack(parent)
	if err != nil {
		return err
	}
	if m.tests == "" && !m.simulated {
		return errors.New("only the fuzzer of sagas finds it: play it with -sagas -only")
	}
	if m.tests != "" {
		names, err := m.test(b)
		if err != nil {
			return err
		}
		fmt.Printf("found by %s of %s: each passes without the change, and fails with it\n", strings.Join(names, "; "), m.packageOfTests())
	}
	if m.tests == "" {
		return m.showSeed(b)
	}
	return nil
}

// print prints the description, and the nodes that the edits change.
func (m *mutant) print() error {
	fmt.Println(m.what)
	for _, e := range m.changes() {
		c, err := e.Find(".")
		if err != nil {
			return err
		}
		fmt.Printf("\t%s: %s: %s: %s\n\t\t%s\n", c.File, e.In, e.At, e.Do, strings.ReplaceAll(c.Node, "\n", "\n\t\t"))
	}
	return nil
}

// named returns the mutant whose description contains a text.
func named(text string) (*mutant, error) {
	var found []*mutant
	for _, m := range all() {
		if m.what == text {
			return &m, nil
		}
		if strings.Contains(m.what, text) {
			found = append(found, &m)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d descriptions contain %q, not one: -list prints them", len(found), text)
	}
	return found[0], nil
}

// showSeed plays the seed that the page names for the mutant, without the change and with it.
func (m *mutant) showSeed(b *builds) error {
	page, err := os.ReadFile(enginePage)
	if err != nil {
		return err
	}
	row := seedInRow.FindStringSubmatch(rowOf(string(page), fmt.Sprintf("| %s | ", m.what)))
	if row == nil {
		return fmt.Errorf("%s names no seed for it", enginePage)
	}
	seed, err := strconv.Atoi(row[1])
	if err != nil {
		return err
	}
	found, kind, err := play(b, seed, seed)
	if err == nil && found == 0 {
		err = fmt.Errorf("seed %d does not find it: play the mutant again with -only", seed)
	}
	if err == nil {
		fmt.Printf("found by the simulation: seed %d passes without the change. With it: %s\n", seed, kind)
	}
	return err
}
