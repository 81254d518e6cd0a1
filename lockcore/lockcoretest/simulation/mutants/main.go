// Command mutants puts defects that lockcore once had back into its source, one at a time, and plays seeds of the
// simulation until one finds it. It writes docs/simulation-mutants.md. Run it in the root of the repository:
//
//	go run ./lockcore/lockcoretest/simulation/mutants
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	page    = "docs/simulation-mutants.md"
	pattern = "./lockcore/lockcoretest/simulation"
)

var (
	seeds = flag.Int("seeds", 1000, "how many seeds to play at most")
	only  = flag.String("only", "", "play the mutants of this defect alone, and write no page")
)

func main() {
	flag.Parse()
	rows, failed := "", 0
	for _, m := range mutants {
		if *only != "" && m.defect != *only {
			continue
		}
		found, err := m.find()
		if err != nil {
			failed++
			found = err.Error()
		}
		row := fmt.Sprintf("| %s | %s | %s |\n", m.defect, m.what, found)
		fmt.Print(row)
		rows += row
	}
	if *only == "" && failed == 0 {
		if err := os.WriteFile(page, []byte(header+rows), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed++
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// find says what notices the mutant.
func (m *mutant) find() (string, error) {
	if m.test != "" {
		return m.named()
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "simulation.test")
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, pattern).CombinedOutput(); err != nil { //nolint:gosec // our own
		return "", fmt.Errorf("it does not compile: %s", out)
	}
	play := exec.Command(binary, "-test.timeout", "30m", "-seeds", fmt.Sprint(*seeds)) //nolint:gosec // our own
	play.Dir = pattern
	out, err := play.CombinedOutput()
	hit := regexp.MustCompile(`seed (\d+): (.+?) after \d+ ms: `).FindSubmatch(out)
	switch {
	case hit != nil:
		return fmt.Sprintf("seed %s: %s", hit[1], hit[2]), nil
	case err != nil:
		return "", fmt.Errorf("the simulation fails without a violation: %s", out[max(0, len(out)-2000):])
	}
	return "", fmt.Errorf("NOT FOUND by %d seeds", *seeds)
}

// named makes sure that the test that notices the mutant is there.
func (m *mutant) named() (string, error) {
	name, file, _ := strings.Cut(m.test, " in ")
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if !bytes.Contains(source, []byte("func "+name+"(")) {
		return "", fmt.Errorf("there is no test %s in %s", name, file)
	}
	return fmt.Sprintf("`%s` in `%s`", name, file), nil
}

// overlay writes the changed files, and which they stand for.
func (m *mutant) overlay(dir string) (string, error) {
	changed := map[string]string{}
	sources := map[string]string{}
	for _, e := range m.edits {
		source, known := sources[e.file]
		if !known {
			read, err := os.ReadFile(e.file)
			if err != nil {
				return "", err
			}
			source = string(read)
		}
		if n := strings.Count(source, e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times, not once: %s", e.file, n, e.old)
		}
		sources[e.file] = strings.Replace(source, e.old, e.new, 1)
	}
	for file, source := range sources {
		path, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(changed)))
		if err := os.WriteFile(to, []byte(source), 0o600); err != nil {
			return "", err
		}
		changed[path] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": changed})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
