package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// Histories are kept in histories/<version>/<feature>.json. What a release has recorded stays forever.
const (
	histories = "testdata/histories"
	// unreleased is the only folder that is recorded again; a release copies it.
	unreleased = "unreleased"
)

var recording = flag.String("record", "", "record histories of "+unreleased+" again, before they are replayed: all, or names with commas")

func TestReplay_RecordedHistories_Match(t *testing.T) {
	t.Parallel()
	for _, f := range features {
		if *recording == "all" || slices.Contains(strings.Split(*recording, ","), f.name) {
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
		require.Equal(t, features[i].commands, commands(history), file)
		require.NoError(t, replayKept(t, features[i], features[i].workflow, history), file)
	}
	for _, f := range features {
		require.True(t, have[f.name], "%s has no history: testdata/histories/README.md says how to record it", f.name)
	}
}

// TestHistory_Wait_AddsDocumentedEvents checks the README's section "Costs".
func TestHistory_Wait_AddsDocumentedEvents(t *testing.T) {
	t.Parallel()
	events := func(name string) int {
		return len(readHistory(t, filepath.Join(histories, unreleased, name+".json")).GetEvents())
	}
	require.Equal(t, 0, events("guarded-step")-events("unguarded"), "a guard")
	require.Equal(t, 0, events("saga")-events("guarded-step"), "a saga")
	require.Equal(t, 6, events("verified")-events("run-scope"), "a commit that verifies")
	require.Equal(t, 6, events("commit-after-5m01s")-events("commit-after-4m59s"), "a commit over five minutes after the last use of a lock")
	require.Equal(t, 12, events("waited")-events("guarded-step"), "a step that waits")
	require.Equal(t, 12, events("saga-waited")-events("saga"), "a step of a saga that waits")
	require.Equal(t, 0, events("lock-waited")-events("lock"), "a Lock that waits")
}

// What replays must not replay with everything, or it would show nothing.
func TestReplay_OtherWorkflow_IsRefused(t *testing.T) {
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
		DisableDeadlockDetection: true, // on a busy machine a workflow task may take longer than a second
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

// commands returns the commands of a run that its history contains: the activities by name, markers, and its end.
func commands(history *historypb.History) (all []string) {
	for _, e := range history.GetEvents() {
		switch {
		case e.GetActivityTaskScheduledEventAttributes() != nil:
			all = append(all, e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName())
		case e.GetMarkerRecordedEventAttributes() != nil:
			all = append(all, e.GetMarkerRecordedEventAttributes().GetMarkerName())
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

// record runs a feature's workflow and keeps its history.
func record(t *testing.T, f feature) {
	t.Helper()
	b := setup(t)
	locker, err := lockcore.New(testenv.Mongo(t).Collection(lockCollection), lockcore.Config{Host: "host"})
	require.NoError(t, err)
	b.locker = locker.Steps()
	b.plugin, err = worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	b.workflows[f.name] = f.workflow
	var o sdkworker.Options
	if f.without {
		o.Plugins = []sdkworker.Plugin{}
	}
	if f.work == nil {
		f.work = func(b *bundle, t *testing.T) { b.work(t, o, recorded) }
	}
	f.work(b, t)
	start := func() client.WorkflowRun { return b.start(t, f.name) }
	if f.drive == nil {
		f.drive = func(_ *testing.T, _ *bundle, start func() client.WorkflowRun) client.WorkflowRun { return start() }
	}
	run := f.drive(t, b, start)
	id, runID := run.GetID(), run.GetRunID()
	b.untilRecorded(t, f, run)
	history := b.historyOf(t, id, runID)
	require.Equal(t, f.commands, commands(history), f.name)
	names := map[string]string{id: "workflow", runID: uuid(1), b.queue: "histories"}
	for _, e := range history.GetEvents() { // the runs that were reset, which must stay different from each other
		if base := e.GetWorkflowTaskFailedEventAttributes().GetBaseRunId(); base != "" && names[base] == "" {
			names[base] = uuid(len(names))
		}
	}
	scrub(history, names)
	writeHistory(t, filepath.Join(histories, unreleased, f.name+".json"), history)
}

// recorded are the activities of the workflows that are recorded.
var recorded = map[string]any{
	"Do": nothing, "Undo": nothing,
	"Refuse": func(context.Context) error { return temporal.NewNonRetryableApplicationError("no", "Refused", nil) },
}

// untilRecorded waits until the run has ended.
func (b *bundle) untilRecorded(t *testing.T, f feature, run client.WorkflowRun) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within+5*time.Minute) // two of them sleep for about five minutes
	defer cancel()
	_ = run.GetWithOptions(ctx, nil, client.WorkflowRunGetOptions{DisableFollowingRuns: true}) // its history shows how it ended
	require.NoError(t, ctx.Err(), "%s did not end", f.name)
}

func (b *bundle) untilEvent(t *testing.T, run client.WorkflowRun, kind enumspb.EventType) {
	t.Helper()
	b.untilEvents(t, run, kind, 1)
}

// writeHistory writes it as `temporal workflow show --output json` does.
func writeHistory(t *testing.T, file string, history *historypb.History) {
	t.Helper()
	text, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(history)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, json.Indent(&out, text, "", "  ")) // its own spaces are random
	out.WriteByte('\n')
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
}

// epoch is the start time of every recorded history.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func uuid(n int) string {
	return "00000000-0000-4000-8000-" + strings.Repeat("0", 11) + strconv.Itoa(n)
}

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	// A fence is a time too, in ms.
	fences = regexp.MustCompile(`("fence":|fence )(\d{13})`)
)

// scrubber replaces what belongs to one machine and one day, and keeps the distances between times.
type scrubber struct {
	names *strings.Replacer
	shift time.Duration
}

func scrub(history *historypb.History, names map[string]string) {
	var pairs []string
	for old, fixed := range names {
		pairs = append(pairs, old, fixed)
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		pairs = append(pairs, host, "host")
	}
	s := &scrubber{names: strings.NewReplacer(pairs...), shift: epoch.Sub(history.GetEvents()[0].GetEventTime().AsTime())}
	s.message(history.ProtoReflect())
}

func (s *scrubber) message(m protoreflect.Message) {
	if at, ok := m.Interface().(*timestamppb.Timestamp); ok {
		moved := timestamppb.New(at.AsTime().Add(s.shift))
		at.Seconds, at.Nanos = moved.GetSeconds(), moved.GetNanos()
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch name := field.Name(); {
		case name == "identity":
			m.Set(field, protoreflect.ValueOfString("worker"))
		case name == "task_id", name == "stack_trace", name == "build_id", name == "binary_checksum":
			m.Clear(field)
		case field.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, item protoreflect.Value) bool {
				if changed, ok := s.value(field.MapValue(), item); ok {
					v.Map().Set(k, changed)
				}
				return true
			})
		case field.IsList():
			for i := range v.List().Len() {
				if changed, ok := s.value(field, v.List().Get(i)); ok {
					v.List().Set(i, changed)
				}
			}
		default:
			if changed, ok := s.value(field, v); ok {
				m.Set(field, changed)
			}
		}
		return true
	})
}

// value returns what replaces a text; messages are changed in place.
func (s *scrubber) value(field protoreflect.FieldDescriptor, v protoreflect.Value) (changed protoreflect.Value, ok bool) {
	switch field.Kind() { //nolint:exhaustive // numbers stay
	case protoreflect.MessageKind:
		s.message(v.Message())
		return v, false
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(s.text(v.String())), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(s.text(string(v.Bytes())))), true
	default:
		return v, false
	}
}

func (s *scrubber) text(text string) string {
	text = s.names.Replace(text)
	text = uuids.ReplaceAllStringFunc(text, func(id string) string {
		if strings.HasPrefix(id, "00000000-") {
			return id
		}
		return uuid(2)
	})
	text = fences.ReplaceAllStringFunc(text, func(fence string) string {
		parts := fences.FindStringSubmatch(fence)
		n, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return fence
		}
		return parts[1] + strconv.FormatInt(n+s.shift.Milliseconds(), 10)
	})
	return times.ReplaceAllStringFunc(text, func(at string) string {
		parsed, err := time.Parse(time.RFC3339Nano, at)
		if err != nil || parsed.IsZero() {
			return at
		}
		return parsed.UTC().Add(s.shift).Format(time.RFC3339Nano)
	})
}
