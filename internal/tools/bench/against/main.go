// Command against compares this directory's build with the build of another commit, by a benchmark of internal/tools/bench.
//
//	go run ./internal/tools/bench/against engine|hot|contended COMMIT [--turns n] [flags of the benchmark]
//
// `make bench AGAINST=COMMIT`, `make bench-hot AGAINST=COMMIT` and `make bench-contended AGAINST=COMMIT` call it.
//
// The other build measures with this directory's benchmark program if that compiles in the commit, and with the commit's own program
// otherwise. Both print JSON, and only figures that both print are compared.
//
// The speed of a shared machine changes from minute to minute. Therefore the builds run alternately, in another order each turn, and
// the result is the median of the turns' ratios. In each turn the other build runs twice. The ratio of the two runs is the
// control: it shows what the machine does to a ratio of equal builds.
//
// It needs the servers of the benchmark: LOCKSTEP_MONGODB_URI and, for hot, TEMPORAL_ADDRESS.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "against:", err)
		os.Exit(1)
	}
}

// benchmark is a benchmark program that can be compared.
type benchmark struct {
	// pkg is the directory of the program in internal/tools/bench.
	pkg string
	// args make the program measure briefly, and print JSON. The user's flags follow them.
	args []string
	// lists are flags that take lists. The program runs once for each combination of their values, so that what is compared is
	// measured within seconds.
	lists []list
	// unless is a flag that replaces the lists.
	unless string
}

type list struct{ name, values string }

var benchmarks = map[string]benchmark{
	"engine":    {pkg: ".", args: []string{"engine", "--json"}},
	"hot":       {pkg: ".", args: []string{"hot", "--json", "--turns", "1", "--each", "3s"}, lists: []list{{"processes", "1,3"}, {"resources", "1,10,200"}}},
	"contended": {pkg: "contended", args: []string{"--json"}, lists: []list{{"lockers", "1,3,10"}}, unless: "slow"},
}

// config has the arguments of this command.
type config struct {
	benchmark
	commit string
	turns  int
	// flags are those of the benchmark.
	flags []string
}

func parse(args []string) (config, error) {
	cfg := config{turns: 9}
	if len(args) < 2 || benchmarks[args[0]].pkg == "" || strings.HasPrefix(args[1], "-") {
		return cfg, errors.New("usage: against engine|hot|contended COMMIT [--turns n] [flags of the benchmark]")
	}
	cfg.benchmark, cfg.commit = benchmarks[args[0]], args[1]
	cfg.lists = slices.Clone(cfg.lists)
	for rest := args[2:]; len(rest) > 0; rest = rest[1:] {
		name, value, hasValue := strings.Cut(strings.TrimLeft(rest[0], "-"), "=")
		if !hasValue && len(rest) > 1 && !strings.HasPrefix(rest[1], "-") {
			value, hasValue, rest = rest[1], true, rest[1:]
		}
		i := slices.IndexFunc(cfg.lists, func(l list) bool { return l.name == name })
		switch {
		case name == "turns":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return cfg, fmt.Errorf("--turns %s: want a positive number", value)
			}
			cfg.turns = n
		case i >= 0:
			cfg.lists[i].values = value
		case hasValue:
			cfg.flags = append(cfg.flags, "--"+name+"="+value)
		default:
			cfg.flags = append(cfg.flags, "--"+name)
		}
		if name == cfg.unless && name != "" {
			cfg.lists = nil
		}
	}
	return cfg, nil
}

// runs returns the arguments of the program for each combination of the lists' values.
func (c config) runs() [][]string {
	all := [][]string{slices.Concat(c.args, c.flags)}
	for _, l := range c.lists {
		var next [][]string
		for _, args := range all {
			for value := range strings.SplitSeq(l.values, ",") {
				next = append(next, append(slices.Clone(args), "--"+l.name+"="+value))
			}
		}
		all = next
	}
	return all
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockstep-against-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	builds, err := build(ctx, cfg, dir, progress)
	if err != nil {
		return err
	}
	var r report
	err = r.measure(ctx, cfg, progress, func(build int, args []string) ([]figure, error) { return runBuild(ctx, builds[build], args) })
	if len(r.rows) > 0 {
		err = errors.Join(err, r.write(out))
	}
	return err
}

// build builds the programs of this directory and of the commit.
func build(ctx context.Context, cfg config, dir string, progress io.Writer) (paths [2]string, err error) {
	const bench = "internal/tools/bench"
	root, err := command(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return paths, err
	}
	commit, err := command(ctx, root, "git", "rev-parse", "--verify", cfg.commit+"^{commit}")
	if err != nil {
		return paths, err
	}
	tree, archive := filepath.Join(dir, "tree"), filepath.Join(dir, "tree.tar")
	if err := os.Mkdir(tree, 0o750); err != nil {
		return paths, err
	}
	if _, err := command(ctx, root, "git", "archive", "--output", archive, commit); err != nil {
		return paths, err
	}
	if _, err := command(ctx, tree, "tar", "-xf", archive); err != nil {
		return paths, err
	}
	paths = [2]string{this: filepath.Join(dir, "this"), other: filepath.Join(dir, "other")}
	compile := func(in, to string) error {
		_, err := command(ctx, in, "go", "build", "-trimpath", "-o", to, "./"+filepath.Join(bench, cfg.pkg))
		return err
	}
	if err := compile(root, paths[this]); err != nil {
		return paths, err
	}
	own, kept := filepath.Join(tree, bench), filepath.Join(dir, "bench")
	if err := os.Rename(own, kept); err != nil && !errors.Is(err, os.ErrNotExist) {
		return paths, err
	}
	if err := os.CopyFS(own, os.DirFS(filepath.Join(root, bench))); err != nil {
		return paths, err
	}
	if compile(tree, paths[other]) == nil {
		fmt.Fprintf(progress, "the program of this directory measures %.12s, too\n", commit)
		return paths, nil
	}
	fmt.Fprintf(progress, "the program of this directory does not compile in %.12s, which measures with its own program\n", commit)
	if err := os.RemoveAll(own); err != nil {
		return paths, err
	}
	if err := os.Rename(kept, own); err != nil {
		return paths, err
	}
	return paths, compile(tree, paths[other])
}

// command runs a command in a directory, and returns its trimmed output.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...) //nolint:gosec // commands of this file, and builds of this repository
	c.Dir = dir
	return output(c)
}

func output(c *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// runBuild lets a build measure. If ctx ends, the build is interrupted, and drops its database.
func runBuild(ctx context.Context, path string, args []string) ([]figure, error) {
	c := exec.CommandContext(ctx, path, args...) //nolint:gosec // builds of this repository
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 30 * time.Second
	out, err := output(c)
	if err != nil {
		return nil, err
	}
	var p printed
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		return nil, fmt.Errorf("%s: read its JSON: %w", strings.Join(c.Args, " "), err)
	}
	return p.figures(), nil
}
