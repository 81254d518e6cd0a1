package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPage_Rows_HaveCommands checks the page itself: the form of each row, and that each defect to put back exists once.
func TestPage_Rows_HaveCommands(t *testing.T) {
	t.Chdir("../../..")
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	rows, err := parse(string(text))
	require.NoError(t, err)
	require.Greater(t, len(rows), 100)
	list, err := exec.CommandContext(t.Context(), "go", "run", "./internal/proof/mutants", "-list").Output()
	require.NoError(t, err)
	for _, r := range rows {
		if r.words[0] != "go" || r.words[1] != "run" {
			continue
		}
		found := 0
		for what := range strings.Lines(string(list)) {
			if strings.Contains(what, r.words[3]) {
				found++
			}
		}
		require.Equal(t, 1, found, "row %d: descriptions that contain %q", r.number, r.words[3])
	}
}

func TestParse_Mistakes_AreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"no table":                                                    "has no rows",
		"| 2 | a | b | c | `make explore` |":                          "row 2 follows row 0",
		"| 1 | a | b | `make explore` |":                              "row 1 needs 5 cells",
		"| 1 | a | b | c | make explore |":                            "row 1 needs 5 cells, and a command",
		"| 1 | a | b | c | `rm -rf x` |":                              "row 1: a command is",
		"| 1 | a | b | c | `go test ./lockcore` |":                    "row 1: a command is",
		"| 1 | a | b | c | `go test ./lockcore -run . -exec x` |":     "row 1: a command is",
		"| 1 | a | b | c | `go run ./internal/proof/mutants -list` |": "row 1: a command is",
		"| 1 | a | b | c | `make explore; x` |":                       "row 1: a command is",
		"| 1 | a | b | c | `make explore 'x` |":                       "a quote is not closed",
	} {
		_, err := parse(text)
		require.ErrorContains(t, err, want, text)
	}
	rows, err := parse("| # | wrong |\n| 1 | a | b | c | `go test ./x -run 'TestA/b c'` slow |\n\n| 2 | a | b | c | `make simulate FROM=7 SEEDS=1` |\n")
	require.NoError(t, err)
	require.Equal(t, []string{"go", "test", "./x", "-run", "TestA/b c"}, rows[0].words)
	require.True(t, rows[0].slow)
	require.False(t, rows[1].slow)
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
	of := func(words ...string) row { return row{number: 1, words: words} }
	here := "github.com/temporal-lockstep/lockstep/internal/tools/defects"
	require.NoError(t, try(t.Context(), of("go", "test", here, "-run", "TestChoose_Options_SelectRows"), time.Minute))
	require.ErrorContains(t, try(t.Context(), of("go", "test", here, "-run", "TestNoSuchTest"), time.Minute), "no test ran")
	require.ErrorContains(t, try(t.Context(), of("go", "test", here, "-run", "TestChoose_Options_SelectRows/no_such_case"), time.Minute), "no test ran")
	require.ErrorContains(t, try(t.Context(), of("false", "x"), time.Minute), "exit status 1")
	require.ErrorContains(t, try(t.Context(), of("sleep", "60"), 10*time.Millisecond), "longer than 10ms")
	require.ErrorContains(t, checkTests("--- PASS: TestA (0s)\n    --- SKIP: TestA/b (0s)\n", "TestA"), "TestA/b was skipped")
}
