// Command defects tries the commands in defects.txt, which lists the defects that Lockstep once had. Run it in the root of the repository, with the addresses of the stack in the
// environment:
//
//	go run ./internal/tools/defects            ten rows, drawn by a seed that is printed
//	go run ./internal/tools/defects -seed 7    the same ten rows each time
//	go run ./internal/tools/defects -row 12    one row
//	go run ./internal/tools/defects -all       every row
//	go run ./internal/tools/defects -list      tries none, and prints all rows as Markdown
//
// A row holds if its command succeeds, and if the tests that it names have run. A command shows a defect by putting it back and seeing a
// test fail, or it runs the test that guards against it. Rows that are marked slow are in no sample.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"
)

type options struct {
	all   bool
	list  bool
	row   int
	count int
	seed  uint64
	limit time.Duration
}

func main() {
	var o options
	flag.BoolVar(&o.all, "all", false, "try every row")
	flag.BoolVar(&o.list, "list", false, "print all rows as Markdown")
	flag.IntVar(&o.row, "row", 0, "try only the row with this number")
	flag.IntVar(&o.count, "count", 10, "how many rows to try")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "what draws the rows")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "how long a row may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run tries rows, or lists them.
func run(ctx context.Context, out io.Writer, o options) error {
	rows, err := parse(records)
	if err != nil {
		return err
	}
	if o.list {
		_, err = io.WriteString(out, list(rows))
		return err
	}
	chosen, err := choose(rows, o)
	if err != nil {
		return err
	}
	if o.row == 0 && !o.all {
		_, _ = fmt.Fprintf(out, "%d of %d rows, drawn by -seed %d\n", len(chosen), len(rows), o.seed)
	}
	failed := 0
	for _, r := range chosen {
		began := time.Now()
		err := try(ctx, r, o.limit)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		state := "holds "
		if err != nil {
			failed++
			state = "FAILED"
		}
		_, _ = fmt.Fprintf(out, "row %3d %s %3d s  %s\n", r.number, state, int(time.Since(began).Seconds()), r.command)
		if err != nil {
			_, _ = fmt.Fprintf(out, "%v\n", err)
		}
	}
	_, _ = fmt.Fprintf(out, "%d rows tried, %d failed\n", len(chosen), failed)
	if failed > 0 {
		return fmt.Errorf("repeat a row with: go run ./internal/tools/defects -row N")
	}
	return nil
}

// choose returns the rows that the options select, in their order.
func choose(rows []row, o options) ([]row, error) {
	switch {
	case o.all:
		return rows, nil
	case o.row != 0:
		i := slices.IndexFunc(rows, func(r row) bool { return r.number == o.row })
		if i < 0 {
			return nil, fmt.Errorf("there is no row %d", o.row)
		}
		return rows[i : i+1], nil
	}
	sample := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.slow })
	drawn := rand.New(rand.NewPCG(o.seed, 0)) //nolint:gosec // draws rows, guards nothing
	drawn.Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
	sample = sample[:min(max(o.count, 0), len(sample))]
	slices.SortFunc(sample, func(a, b row) int { return a.number - b.number })
	return sample, nil
}

// try runs the command of a row. It returns an error, with the end of the output, if the command fails, takes too long, or runs no test.
func try(ctx context.Context, r row, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	line := strings.Replace(r.command, "go test ", "go test -v -count=1 -timeout="+limit.String()+" ", 1)
	command := exec.CommandContext(ctx, "bash", "-c", "exec "+line) //nolint:gosec // parse has checked its form
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	out, err := command.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("it took longer than %v", limit)
	case err == nil && r.pattern != "":
		err = checkTests(string(out), r.pattern)
	}
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%w\n%s", err, strings.Join(lines[max(0, len(lines)-40):], "\n"))
}

var (
	passed  = regexp.MustCompile(`(?m)^ *--- PASS: (\S+)`)
	skipped = regexp.MustCompile(`(?m)^ *--- SKIP: (\S+)`)
)

// checkTests returns an error unless a test, or a subtest if the pattern names one, has run and none was skipped.
func checkTests(out, pattern string) error {
	if m := skipped.FindStringSubmatch(out); m != nil {
		return fmt.Errorf("%s was skipped", m[1])
	}
	for _, m := range passed.FindAllStringSubmatch(out, -1) {
		if strings.Count(m[1], "/") >= strings.Count(pattern, "/") {
			return nil
		}
	}
	return errors.New("no test ran")
}
