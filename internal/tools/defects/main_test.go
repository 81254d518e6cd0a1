package main

import (
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/docscheck"
)

// TestRecords_Commands_Exist checks that each defect to put back exists once, and that each named test and target exists.
func TestRecords_Commands_Exist(t *testing.T) {
	t.Chdir("../../..")
	rows, err := parse(records)
	require.NoError(t, err)
	require.Greater(t, len(rows), 100)
	mutants, err := exec.CommandContext(t.Context(), "go", "run", "./internal/proof/mutants", "-list").Output()
	require.NoError(t, err)
	for _, r := range rows {
		if r.mutant == "" {
			continue
		}
		found := 0
		for what := range strings.Lines(string(mutants)) {
			if strings.Contains(what, r.mutant) {
				found++
			}
		}
		require.Equal(t, 1, found, "row %d: descriptions that contain %q", r.number, r.mutant)
	}
	tree, err := docscheck.Checkout(t.Context(), ".")
	require.NoError(t, err)
	maps.DeleteFunc(tree.Files, func(name, _ string) bool { return strings.HasSuffix(name, ".md") })
	tree.Files["the list of defects.md"] = list(rows)
	require.Empty(t, append(docscheck.Tests(tree), docscheck.Targets(tree)...))
}

// TestPage_Counts_AreThoseOfTheRecords checks the numbers in docs/defects.md.
func TestPage_Counts_AreThoseOfTheRecords(t *testing.T) {
	t.Parallel()
	rows, err := parse(records)
	require.NoError(t, err)
	page, err := os.ReadFile("../../../docs/defects.md")
	require.NoError(t, err)
	require.Contains(t, string(page), counts(rows), "copy these lists into docs/defects.md")
}

func TestParse_Mistakes_AreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\nb; c":                                        "row 1: a record has three lines",
		"a | b\nb; c\nmake explore":                      "row 1: a record has three lines, the first without a |",
		"a\nb\nmake explore":                             "row 1: the second line is",
		"a\nb; c; fast\nmake explore":                    "row 1: the second line is",
		"a\nb; c\nrm -rf x":                              "row 1: a command is",
		"a\nb; c\ngo test ./lockcore":                    "row 1: a command is",
		"a\nb; c\ngo test ./lockcore -run . -exec x":     "row 1: a command is",
		"a\nb; c\ngo run ./internal/proof/mutants -list": "row 1: a command is",
		"a\nb; c\nmake explore; x":                       "row 1: a command is",
		"a\nb; c\nmake explore 'x":                       "row 1: a command is",
	} {
		_, err := parse(text)
		require.ErrorContains(t, err, want, text)
	}
	rows, err := parse("# Kind\n\na\nb; c; slow\ngo test ./x -run 'TestA/b c'\n\nd\nb; e, f\nmake simulate FROM=7 SEEDS=1\n")
	require.NoError(t, err)
	require.Equal(t, row{
		number: 1, kind: "Kind", defect: "a", foundBy: "b", foundNow: "c", slow: true,
		command: "go test ./x -run 'TestA/b c'", pattern: "TestA/b c",
	}, rows[0])
	require.False(t, rows[1].slow)
	require.Contains(t, list(rows), "## Kind\n\n| # |")
	require.Contains(t, list(rows), "| 1 | a | b | c | `go test ./x -run 'TestA/b c'` slow |\n| 2 | d | b | e, f | `make simulate FROM=7 SEEDS=1` |\n")
	require.Equal(t, "By kind:\n\n- Kind: 2\n\nBy what found them:\n\n- b: 2\n", counts(rows))
}

func TestChoose_Options_SelectRows(t *testing.T) {
	t.Parallel()
	rows := make([]row, 50)
	for i := range rows {
		rows[i] = row{number: i + 1, slow: i%2 == 0}
	}
	numbers := func(o options) (found []int) {
		chosen, err := choose(rows, o)
		require.NoError(t, err)
		for _, r := range chosen {
			found = append(found, r.number)
		}
		return found
	}
	require.Len(t, numbers(options{all: true}), 50)
	require.Equal(t, []int{7}, numbers(options{row: 7}))
	sample := numbers(options{count: 10, seed: 3})
	require.Len(t, sample, 10)
	require.IsIncreasing(t, sample)
	require.Equal(t, sample, numbers(options{count: 10, seed: 3}))
	require.NotEqual(t, sample, numbers(options{count: 10, seed: 4}))
	for _, n := range sample {
		require.Zero(t, n%2, "a slow row is in no sample")
	}
	_, err := choose(rows, options{row: 51})
	require.ErrorContains(t, err, "there is no row 51")
}

func TestTry_Commands_HoldOrFail(t *testing.T) {
	t.Parallel()
	test := "go test github.com/temporal-lockstep/lockstep/internal/tools/defects -run "
	tryOne := func(pattern, command string, limit time.Duration) error {
		return try(t.Context(), row{number: 1, pattern: pattern, command: command + pattern}, limit)
	}
	require.NoError(t, tryOne("TestChoose_Options_SelectRows", test, time.Minute))
	require.ErrorContains(t, tryOne("TestNoSuchTest", test, time.Minute), "no test ran")
	require.ErrorContains(t, tryOne("TestChoose_Options_SelectRows/no_such_case", test, time.Minute), "no test ran")
	require.ErrorContains(t, tryOne("", "false x", time.Minute), "exit status 1")
	require.ErrorContains(t, tryOne("", "sleep 60", 10*time.Millisecond), "longer than 10ms")
	require.ErrorContains(t, checkTests("--- PASS: TestA (0s)\n    --- SKIP: TestA/b (0s)\n", "TestA"), "TestA/b was skipped")
}
