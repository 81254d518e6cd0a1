package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// A killed demo cannot stop its workers: they must notice by themselves.
func TestDemo_Killed_LeavesNoWorkers(t *testing.T) {
	t.Parallel()
	c := start(t, servers(t), "demo", "--transfers", "5000", "--concurrency", "2")
	run := started(t, c.Dir)
	removeAtEnd(t, run)
	require.Positive(t, workersOf(run))
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	require.Eventually(t, func() bool { return workersOf(run) == 0 }, 30*time.Second, 20*time.Millisecond, "a worker still runs")
}

// workersOf counts the worker processes of a run, as Linux sees them.
func workersOf(run string) (n int) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, path := range commands {
		line, err := os.ReadFile(path) // it fails for a process that has just ended
		if err == nil && bytes.Contains(line, []byte("demo-worker\x00")) && bytes.Contains(line, []byte(run)) {
			n++
		}
	}
	return n
}

// removeAtEnd removes the database and the workflows of a killed demo.
func removeAtEnd(t *testing.T, run string) {
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
