package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

// record runs a feature's workflow and keeps its history.
func record(t *testing.T, f feature) {
	t.Helper()
	b := setup(t)
	locker, err := lockcore.New(testenv.Mongo(t).Collection(lockCollection), lockcore.Config{Host: "host"})
	require.NoError(t, err)
	b.locker = locker
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
	require.Equal(t, f.commands, commands(t, history), f.name)
	names := map[string]string{id: "workflow", runID: uuid(1), b.queue: "histories"}
	for _, e := range history.GetEvents() { // the runs that were reset, which must go on being different ones
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
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	_ = run.GetWithOptions(ctx, nil, client.WorkflowRunGetOptions{DisableFollowingRuns: true}) // how it ends stands in its history
	require.NoError(t, ctx.Err(), "%s did not end", f.name)
}

func (b *bundle) untilEvent(t *testing.T, run client.WorkflowRun, kind enumspb.EventType) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(b.historyOf(t, run.GetID(), run.GetRunID()).GetEvents(), func(e *historypb.HistoryEvent) bool {
			return e.GetEventType() == kind
		})
	}, within, 20*time.Millisecond, "the run has no event %s", kind)
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

// epoch is when every kept history begins.
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
