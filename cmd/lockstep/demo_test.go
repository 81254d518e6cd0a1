package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func TestDemo_NoTemporal_LeavesNothing(t *testing.T) {
	t.Parallel()
	before := databases(t)
	code, _, stderr := lockstep(t, []string{"TEMPORAL_ADDRESS=127.0.0.1:1", "LOCKSTEP_MONGODB_URI=" + testenv.MongoURI(t)}, "demo")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no Temporal server answers at 127.0.0.1:1")
	require.Contains(t, stderr, "make stack-up")
	// Other demos make databases at the same time, and drop them.
	made := databases(t)
	mongo := testenv.Mongo(t).Client()
	require.Eventually(t, func() bool {
		now, err := mongo.ListDatabaseNames(t.Context(), demos)
		made = slices.DeleteFunc(made, func(name string) bool {
			return slices.Contains(before, name) || err == nil && !slices.Contains(now, name)
		})
		return len(made) == 0
	}, 5*time.Minute, 100*time.Millisecond, "a demo that could not start has left its database")
}

func TestDemo_WorkerKilled_ConservesMoney(t *testing.T) {
	t.Parallel()
	traces := t.TempDir()
	code, stdout, stderr := lockstep(t, servers(t), "demo", "--transfers", "12", "--accounts", "4", "--concurrency", "6", "--traces", traces)
	require.Equal(t, 0, code, stdout+stderr)
	require.Regexp(t, `transfers +\d+ committed, \d+ compensated, 0 failed otherwise`, stdout)
	require.Regexp(t, `AUDITS THAT SAW A WRONG TOTAL +0\n`, stdout)
	require.Contains(t, stdout, "conserved")
	require.Contains(t, stdout, "worker-1, by SIGKILL")
	requireEveryWaitExplained(t, traces)
}

// requireEveryWaitExplained requires that a demo's traces link each wait to a blocking hold, and that hold to a step, its
// workflow and its span.
func requireEveryWaitExplained(t *testing.T, traces string) {
	t.Helper()
	code, stdout, stderr := lockstep(t, nil, "contention", "--json", traces)
	require.Equal(t, 0, code, stderr)
	var r contention.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.Zero(t, r.Read.Broken)
	require.Zero(t, r.Read.Malformed)
	require.NotEmpty(t, r.Waits, "nothing waited")
	for i, w := range r.Waits {
		require.True(t, slices.ContainsFunc(w.Blockers, func(b contention.Blocker) bool { return b.Named }), "its span names no holder: %+v", w)
		require.True(t, slices.ContainsFunc(w.Blockers, func(b contention.Blocker) bool {
			if b.Hold < 0 || b.Workflow == "" || b.Trace == "" || b.Span == "" {
				return false
			}
			hold := r.Holds[b.Hold] // a claim that was never confirmed has no step
			return (b.Step != "" || len(hold.Steps) == 0) && slices.Contains(hold.Blocks, i)
		}), "no hold is linked to it: %+v", w)
	}
}

// The control: without locks the same load goes wrong.
func TestDemo_GuardsOff_FindsWrongAudits(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := lockstep(t, servers(t), "demo", "--guards", "off", "--transfers", "60", "--accounts", "4", "--kill=false")
	require.Equal(t, 1, code, stdout+stderr)
	require.Regexp(t, `AUDITS THAT SAW A WRONG TOTAL +[1-9]`, stdout)
	require.Contains(t, stderr, "audits saw a wrong total")
	require.Regexp(t, `this is what the control is for.*\n$`, stderr)
}

func TestDemo_Interrupted_StopsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, servers(t), "demo", "--transfers", "5000", "--accounts", "20")
	run := started(t, c.Dir)
	c.interrupt(t)
	begun := time.Now()
	require.Equal(t, 130, c.wait(t), &c.stderr)
	require.Contains(t, c.stderr.String(), "lockstep: interrupted")
	require.Less(t, time.Since(begun), time.Minute, "bounded, whatever the machine is doing")
	require.NotContains(t, databases(t), databaseOf(run))
	require.Empty(t, c.stdout.String())
}

// started waits until the demo in the folder dir has started its workers, and returns the run's name.
func started(t *testing.T, dir string) (run string) {
	t.Helper()
	var found []string
	require.Eventually(t, func() bool {
		var err error
		found, err = filepath.Glob(filepath.Join(dir, "traces", "*", "worker-3-*.spans.jsonl"))
		return err == nil && len(found) == 1
	}, time.Minute, 20*time.Millisecond, "it starts its workers")
	return filepath.Base(filepath.Dir(found[0]))
}

func databaseOf(run string) string { return "lockstep_" + strings.ReplaceAll(run, "-", "_") }

// demos selects the databases of demos.
var demos = bson.D{{Key: "name", Value: bson.D{{Key: "$regex", Value: "^lockstep_demo"}}}}

func databases(t *testing.T) []string {
	t.Helper()
	names, err := testenv.Mongo(t).Client().ListDatabaseNames(t.Context(), demos)
	require.NoError(t, err)
	return names
}
