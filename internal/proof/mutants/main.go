// Command mutants puts earlier defects back into the source of lockcore, one at a time, and records what finds each of them: a
// seed of the simulation, or a test. It writes internal/proof/simulation/MUTANTS.md. Run it in the root of the repository, with
// the servers of the stack running:
//
//	go run ./internal/proof/mutants
//
// With -sagas it uses defects of the Temporal side and the fuzzer of sagas, and writes internal/proof/sagafuzz/MUTANTS.md.
//
// With an argument, a text that occurs in the description of one defect only, it puts that defect back, shows that it is found, and writes
// no page. These are the commands of internal/tools/defects:
//
//	go run ./internal/proof/mutants "steps of scope step share the lock ID"
//
// With -list it prints the descriptions of all defects, and with -nodes also the nodes that their edits change. Compare its output before
// and after statements are added to a function or removed from it: a path may then select another node.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/proof/mutate"
)

const (
	pattern = "./internal/proof/simulation"
	// notPlayed is the result of mutants that were not played.
	notPlayed = "not played"
)

var (
	seeds = flag.Int("seeds", 1000, "how many seeds to play at most")
	sagas = flag.Bool("sagas", false, "play the defects of the Temporal side, with the fuzzer of sagas")
	only  = flag.String("only", "", "a regular expression: play only the mutants whose description matches, and keep the other rows of the page")
	list  = flag.Bool("list", false, "print the descriptions of all defects")
	nodes = flag.Bool("nodes", false, "print the nodes that the edits of all defects change")
)

func main() {
	flag.Parse()
	var err error
	switch {
	case *list:
		for _, m := range all() {
			fmt.Println(m.what)
		}
	case *nodes:
		for _, m := range all() {
			err = errors.Join(err, m.print())
		}
	case flag.NArg() > 0:
		err = show(strings.Join(flag.Args(), " "))
	default:
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run plays the mutants and writes the page.
func run() error {
	page, header, mutants := enginePage, header, mutants
	if *sagas {
		page, header, mutants = "internal/proof/sagafuzz/MUTANTS.md", sagaHeader, sagaMutants
	}
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	selected, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only %q: %w", *only, err)
	}
	text := header
	var failed error
	for i := range mutants {
		m := &mutants[i]
		begin := fmt.Sprintf("| %s | ", m.what)
		found := rowOf(string(old), begin)
		if selected.MatchString(m.what) {
			if found, err = m.find(dir); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", m.what, err))
				found, _, _ = strings.Cut(err.Error(), "\n")
			}
			fmt.Println(begin + found + " |")
		}
		text += begin + found + " |\n"
	}
	return errors.Join(failed, os.WriteFile(page, []byte(text), 0o600)) //nolint:gosec // the page of this repository
}

// rowOf returns the result in the row of a page that begins with begin.
func rowOf(page, begin string) string {
	if _, rest, ok := strings.Cut(page, begin); ok {
		found, _, _ := strings.Cut(rest, " |\n")
		return found
	}
	return notPlayed
}

// find returns the seeds and tests that find the mutant.
func (m *mutant) find(parent string) (string, error) {
	b, err := m.putBack(parent)
	if err != nil {
		return "", err
	}
	var found []string
	if m.check != "" {
		seed, err := m.fuzz(b)
		if err != nil {
			return "", err
		}
		if seed != "" {
			found = append(found, seed)
		}
	}
	if m.simulated {
		seed, kind, err := play(b, 1, *seeds)
		if err != nil {
			return "", err
		}
		if seed != 0 {
			fails, err := repeat(b, seed)
			if err != nil {
				return "", err
			}
			found = append(found, fmt.Sprintf("seed %d (%s/%d): %s", seed, fails, repeats, kind))
		}
	}
	if m.tests != "" {
		names, err := m.test(b)
		if err != nil {
			return "", err
		}
		found = append(found, names...)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("not found by %d seeds", *seeds)
	}
	return strings.Join(found, "; "), nil
}

// repeats is the number of times that a failing seed is played again.
const repeats = 10

var counted = regexp.MustCompile(`each seed failed: map\[\d+:(\d+)\]`)

var hit = regexp.MustCompile(`seed (\d+): (.+?) after \d+ ms: `)

// play returns the first seed in a range that fails with the mutant and passes without it, and the kind of its violation; 0 if there is none.
func play(b *builds, from, last int) (seed int, kind string, err error) {
	sound, broken, err := b.of(pattern)
	if err != nil {
		return 0, "", err
	}
	passes := func(binary string, from, count int) ([]byte, error) {
		return execute(binary, pattern, "-test.timeout", "30m", "-from", fmt.Sprint(from), "-seeds", fmt.Sprint(count))
	}
	for ; from <= last; from = seed + 1 {
		out, err := passes(broken, from, last+1-from)
		found := hit.FindSubmatch(out)
		switch {
		case err == nil:
			return 0, "", nil
		case found == nil:
			return 0, "", fmt.Errorf("the simulation fails without a violation: %s", out[max(0, len(out)-2000):])
		}
		if seed, err = strconv.Atoi(string(found[1])); err != nil {
			return 0, "", err
		}
		if _, err := passes(sound, seed, 1); err == nil {
			return seed, string(found[2]), nil
		}
	}
	return 0, "", nil
}

// repeat returns how often a seed fails with the mutant if it is played again some times.
func repeat(b *builds, seed int) (string, error) {
	_, broken, err := b.of(pattern)
	if err != nil {
		return "", err
	}
	again, _ := execute(broken, pattern, "-test.timeout", "30m", "-from", fmt.Sprint(seed), "-seeds", "1", "-times", fmt.Sprint(repeats))
	fails := counted.FindSubmatch(again)
	if fails == nil {
		return "", fmt.Errorf("seed %d does not fail again: %s", seed, again[max(0, len(again)-2000):])
	}
	return string(fails[1]), nil
}

// test returns the tests that fail with the mutant and pass without it.
func (m *mutant) test(b *builds) ([]string, error) {
	sound, broken, err := b.of(m.packageOfTests())
	if err != nil {
		return nil, err
	}
	if out, err := execute(sound, m.packageOfTests(), "-test.run", m.tests, "-test.v"); err != nil || !bytes.Contains(out, []byte("--- PASS: ")) {
		return nil, fmt.Errorf("%s does not pass without the mutant: %s", m.tests, out)
	}
	out, err := execute(broken, m.packageOfTests(), "-test.timeout", m.limit(), "-test.run", m.tests)
	if err == nil {
		return nil, fmt.Errorf("%s passes", m.tests)
	}
	var found []string
	add := func(name, how string) {
		if strings.Contains(name, "/") { // its parent is reported
			return
		}
		found = append(found, "`"+name+"`"+how)
	}
	for _, fail := range regexp.MustCompile(`--- FAIL: (\S+) `).FindAllSubmatch(out, -1) {
		add(string(fail[1]), "")
	}
	if hangs := regexp.MustCompile(`panic: test timed out after \w+\s+running tests:\s+(\w+)`).FindSubmatch(out); hangs != nil {
		add(string(hangs[1]), ", which does not end")
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s fails without a failure: %s", m.tests, out[:min(len(out), 2000)])
	}
	return found, nil
}

// builds have binaries without a mutant, in the folder sound, and with it, in the folder broken.
type builds struct{ sound, broken, overlay string }

// putBack returns the builds with and without the mutant. They are in parent.
func (m *mutant) putBack(parent string) (*builds, error) {
	dir, err := os.MkdirTemp(parent, "mutant")
	if err != nil {
		return nil, err
	}
	overlay, err := mutate.Overlay(".", dir, m.changes()...)
	return &builds{parent, dir, overlay}, err
}

// of returns the binaries of a package's tests, or of the fuzzer.
func (b *builds) of(in string) (sound, broken string, err error) {
	if sound, err = built(b.sound, in); err != nil {
		return "", "", err
	}
	broken, err = built(b.broken, in, "-overlay", b.overlay)
	return sound, broken, err
}

// built returns the binary of a package's tests, or of the fuzzer. It builds it in dir unless it exists.
func built(dir, in string, flags ...string) (string, error) {
	binary := filepath.Join(dir, filepath.Base(in)+".test")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	args := append([]string{"test", "-c", "-ldflags=-s -w", "-o", binary}, flags...)
	if in == fuzzer {
		args = append([]string{"build", "-o", binary}, flags...)
	}
	if out, err := exec.CommandContext(context.Background(), "go", append(args, in)...).CombinedOutput(); err != nil { //nolint:gosec // our own
		return "", fmt.Errorf("it does not compile: %s", out)
	}
	return binary, nil
}

// execute runs the binary of a package's tests.
func execute(binary, in string, args ...string) ([]byte, error) {
	c := exec.CommandContext(context.Background(), binary, args...) //nolint:gosec // our own
	c.Dir = in
	return c.CombinedOutput()
}
