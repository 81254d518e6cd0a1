package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// A demo that is killed can stop nobody: its workers must notice by themselves.
func TestKilledDemoLeavesNoWorkers(t *testing.T) {
	t.Parallel()
	c := exec.CommandContext(t.Context(), binary, "demo", "--transfers", "5000", "--concurrency", "2")
	c.Dir = t.TempDir()
	c.Env = append(c.Environ(), servers(t)...)
	require.NoError(t, c.Start())
	run := started(t, c.Dir)
	tidyUpAtTheEnd(t, run)
	require.Positive(t, workersOf(run))
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	require.Eventually(t, func() bool { return workersOf(run) == 0 }, 30*time.Second, 20*time.Millisecond, "a worker lives on")
}

// workersOf counts the worker processes of a run, as Linux sees them.
func workersOf(run string) (n int) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, path := range commands {
		line, err := os.ReadFile(path) // one that has ended meanwhile counts as none
		if err == nil && bytes.Contains(line, []byte("demo-worker\x00")) && bytes.Contains(line, []byte(run)) {
			n++
		}
	}
	return n
}

// tidyUpAtTheEnd removes what a killed demo cannot: its database and its workflows.
func tidyUpAtTheEnd(t *testing.T, run string) {
	t.Helper()
	mongo, temporal := testenv.Mongo(t).Client(), testenv.Temporal(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, mongo.Database(databaseOf(run)).Drop(ctx))
		query := "ExecutionStatus = 'Running' AND TaskQueue = '" + run + "'"
		open, err := temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query})
		require.NoError(t, err)
		for _, e := range open.GetExecutions() {
			_ = temporal.TerminateWorkflow(ctx, e.GetExecution().GetWorkflowId(), "", "its demo was killed") // it may have ended just now
		}
	})
}
