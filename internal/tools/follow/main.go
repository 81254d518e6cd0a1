// Command follow counts the files, functions and lines that a reader meets who follows a call by name to its end. It makes each call with
// everything in memory, and counts what the call covers. The set-up of a call does not count, and neither do tests, commands, examples,
// tools and the proof. Run it in the root of the repository:
//
//	go run ./internal/tools/follow       prints a table of the calls
//	go run ./internal/tools/follow -v    also lists the files of each call, with their number of lines and their functions
//
// Lines are those of the covered blocks of Go's coverage profile. Each call is made in several processes, whose coverage is added, because
// a few branches depend on timing. A package is listed before its imports.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
)

const (
	module = "github.com/temporal-lockstep/lockstep"
	caller = module + "/internal/tools/follow/walks"
	rounds = 5
)

// walks are the calls that package walks can make.
var walks = []struct{ name, about string }{
	{"acquire", "Acquire of a free resource"},
	{"wake", "Acquire of a held resource, which another process releases"},
	{"guard", "a guarded step"},
	{"saga", "a saga that commits, and one that fails and compensates"},
}

func main() {
	verbose := flag.Bool("v", false, "list the files and functions")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, verbose bool) error {
	dir, err := os.MkdirTemp("", "follow-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	packages, err := imported(ctx)
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "walks")
	// ClearCounters needs atomic counters, and the main package with coverage.
	with := "-coverpkg=" + strings.Join(append(packages, caller), ",")
	if _, err := output(ctx, dir, "go", "build", "-cover", "-covermode=atomic", with, "-o", program, caller); err != nil {
		return err
	}
	rows := [][]string{{"walk", "files", "functions", "lines", "call"}}
	details := ""
	for _, w := range walks {
		files, err := follow(ctx, dir, program, w.name)
		if err != nil {
			return err
		}
		functions, lines := 0, 0
		for _, f := range files {
			functions, lines = functions+len(f.functions), lines+f.lines
		}
		rows = append(rows, []string{w.name, strconv.Itoa(len(files)), strconv.Itoa(functions), strconv.Itoa(lines), w.about})
		details += "\n" + w.name + ": " + w.about + "\n" + list(files, packages)
	}
	if err := table.Write(out, rows...); err != nil || !verbose {
		return err
	}
	_, err = io.WriteString(out, details)
	return err
}

// imported returns the packages that count, each before its imports.
func imported(ctx context.Context) ([]string, error) {
	all, err := output(ctx, "", "go", "list", "-deps", caller)
	packages := slices.DeleteFunc(strings.Fields(all), func(p string) bool { return !counts(p) })
	slices.Reverse(packages)
	return packages, err
}

// counts reports whether a package, or the package of a file, counts.
func counts(p string) bool {
	without := []string{"internal/proof/", "internal/tools/", "internal/cli/", "cmd/", "examples/"}
	rest, ours := strings.CutPrefix(p+"/", module+"/")
	return ours && !slices.ContainsFunc(without, func(folder string) bool { return strings.HasPrefix(rest, folder) })
}

// follow makes a call, and returns what it covers.
func follow(ctx context.Context, dir, program, walk string) ([]file, error) {
	data := filepath.Join(dir, walk)
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	for range rounds {
		if _, err := output(ctx, dir, program, walk, data); err != nil {
			return nil, err
		}
	}
	text := data + ".txt"
	if _, err := output(ctx, dir, "go", "tool", "covdata", "textfmt", "-i="+data, "-o="+text); err != nil {
		return nil, err
	}
	profile, err := os.Open(text) //nolint:gosec // in a folder that run has made
	if err != nil {
		return nil, err
	}
	defer profile.Close()
	return covered(profile, ".")
}

// output runs a command. Go writes the coverage of a whole process, which is not used, to ignored.
func output(ctx context.Context, ignored, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...) //nolint:gosec // Go, and a program that it has built
	command.Env = append(os.Environ(), "GOCOVERDIR="+ignored)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(text), err
}

// list prints the files of each package, with their functions.
func list(files []file, packages []string) string {
	var text strings.Builder
	for _, p := range packages {
		title := "  " + strings.TrimPrefix(p, module+"/") + "\n"
		for _, f := range files {
			if path.Dir(f.path) == p {
				fmt.Fprintf(&text, "%s    %s (%d): %s\n", title, path.Base(f.path), f.lines, strings.Join(f.functions, ", "))
				title = ""
			}
		}
	}
	return text.String()
}
