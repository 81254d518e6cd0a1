package worker_test

import (
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/worker"
)

// Histories are kept in histories/<version>/<feature>.json. What a release has recorded stays for ever.
const (
	histories = "testdata/histories"
	// unreleased is the one folder that is recorded anew; a release renames it.
	unreleased = "unreleased"
)

var recording = flag.Bool("record", false, "record the histories of "+unreleased+" anew, before they are replayed")

func TestKeptHistoriesReplay(t *testing.T) {
	t.Parallel()
	if *recording {
		for _, f := range features {
			record(t, f)
		}
	}
	files := kept(t)
	require.NotEmpty(t, files, "no histories are kept: testdata/histories/README.md says how to record them")
	have := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		i := slices.IndexFunc(features, func(f feature) bool { return f.name == name })
		require.GreaterOrEqual(t, i, 0, "%s has no definition any more: whoever runs that workflow cannot go on", file)
		have[name] = true
		history := readHistory(t, file)
		require.Equal(t, features[i].commands, commands(t, history), file)
		require.NoError(t, replayKept(t, features[i], features[i].workflow, history), file)
	}
	for _, f := range features {
		require.True(t, have[f.name], "%s has no history: testdata/histories/README.md says how to record it", f.name)
	}
}

// TestWhatAWaitAddsToAHistory is what the README's section "Costs" says.
func TestWhatAWaitAddsToAHistory(t *testing.T) {
	t.Parallel()
	events := func(name string) int {
		return len(readHistory(t, filepath.Join(histories, unreleased, name+".json")).GetEvents())
	}
	require.Equal(t, 0, events("guarded-step")-events("unguarded"), "a guard")
	require.Equal(t, 1, events("saga")-events("guarded-step"), "a saga")
	require.Equal(t, 12, events("waited")-events("guarded-step"), "a step that waits")
	require.Equal(t, 12, events("saga-waited")-events("saga"), "a step of a saga that waits")
	require.Equal(t, 0, events("lock-waited")-events("lock"), "a Lock that waits")
}

// What replays must not replay with everything, or it would show nothing.
func TestKeptHistoriesRefuseOtherWorkflows(t *testing.T) {
	t.Parallel()
	for _, file := range kept(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		i := slices.IndexFunc(features, func(f feature) bool { return f.name == name })
		require.GreaterOrEqual(t, i, 0, file)
		other := func(ctx workflow.Context) error {
			if err := do(withOptions(ctx), "SomethingElse"); err != nil {
				return err
			}
			return features[i].workflow(ctx)
		}
		require.Error(t, replayKept(t, features[i], other, readHistory(t, file)), file)
	}
}

func kept(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(histories, "*", "*.json"))
	require.NoError(t, err)
	return files
}

func readHistory(t *testing.T, file string) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	history, err := client.HistoryFromJSON(f, client.HistoryJSONOptions{})
	require.NoError(t, err, file)
	return history
}

func replayKept(t *testing.T, f feature, fn func(workflow.Context) error, history *historypb.History) error {
	t.Helper()
	replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		Plugins:                  []sdkworker.Plugin{worker.NewReplayPlugin()},
		DisableDeadlockDetection: true, // a second without an end is no deadlock on a machine that is busy
	})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: f.name})
	logger := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	own := workflow.Execution{ID: "workflow", RunID: uuid(1)} // as it is recorded, and as a worker knows it
	return errors.Join(
		replayer.ReplayWorkflowHistory(logger, history),
		replayer.ReplayWorkflowHistoryWithOptions(logger, history, sdkworker.ReplayWorkflowHistoryOptions{OriginalExecution: own}),
	)
}

// commands are what a run did, as its history has it: the activities by name, local ones after "local ", other markers, and its end.
func commands(t *testing.T, history *historypb.History) (all []string) {
	t.Helper()
	for _, e := range history.GetEvents() {
		switch {
		case e.GetActivityTaskScheduledEventAttributes() != nil:
			all = append(all, e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName())
		case e.GetMarkerRecordedEventAttributes() != nil:
			all = append(all, marker(t, e.GetMarkerRecordedEventAttributes()))
		case e.GetWorkflowTaskFailedEventAttributes().GetCause() == enumspb.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW:
			all = append(all, "reset")
		case e.GetTimerStartedEventAttributes() != nil:
			all = append(all, "timer")
		case e.GetStartChildWorkflowExecutionInitiatedEventAttributes() != nil:
			all = append(all, "child")
		case e.GetSignalExternalWorkflowExecutionInitiatedEventAttributes() != nil:
			all = append(all, "signal")
		case e.GetWorkflowExecutionUpdateAcceptedEventAttributes() != nil:
			all = append(all, "update")
		case e.GetWorkflowExecutionCompletedEventAttributes() != nil:
			all = append(all, "completed")
		case e.GetWorkflowExecutionFailedEventAttributes() != nil:
			all = append(all, "failed: "+root(e.GetWorkflowExecutionFailedEventAttributes().GetFailure()))
		case e.GetWorkflowExecutionCanceledEventAttributes() != nil:
			all = append(all, "cancelled")
		case e.GetWorkflowExecutionContinuedAsNewEventAttributes() != nil:
			all = append(all, "continued as new")
		}
	}
	return all
}

// root is the type of the failure at the end of a chain.
func root(f *failurepb.Failure) string {
	for f.GetCause() != nil {
		f = f.GetCause()
	}
	return f.GetApplicationFailureInfo().GetType()
}

func marker(t *testing.T, m *historypb.MarkerRecordedEventAttributes) string {
	t.Helper()
	read := func(key string, into any) {
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(m.GetDetails()[key], into))
	}
	switch m.GetMarkerName() {
	case "LocalActivity":
		var data struct{ ActivityType string }
		read("data", &data)
		return "local " + data.ActivityType
	default:
		return m.GetMarkerName()
	}
}
