package contention

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// scene is a list of spans. Times are in milliseconds since begin.
type scene struct {
	spans []sceneSpan
	next  byte
}

type attrs map[string]any

type sceneSpan struct {
	name     string
	id       byte
	from, to int
	attrs    attrs
	events   []sceneEvent
	service  string
}

type sceneEvent struct {
	name  string
	at    int
	attrs attrs
}

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (s *scene) add(name string, from, to int, a attrs, events ...sceneEvent) *sceneSpan {
	s.next++
	s.spans = append(s.spans, sceneSpan{name, s.next, from, to, a, events, "payments"})
	return &s.spans[len(s.spans)-1]
}

// namespace is the namespace ID of all workflows.
const namespace = "3d1e1f0c-6f5a-4c9e-9d51-0a6f4b1c2d3e"

// lockID returns the lock ID of an owner that is a workflow.
func lockID(owner string) string {
	return wire.Run{Namespace: namespace, WorkflowID: owner}.LockID()
}

func about(resource, owner string, more attrs) attrs {
	a := attrs{telemetry.Resource: resource, telemetry.LockID: lockID(owner), telemetry.Owner: owner, telemetry.Mode: "exclusive"}
	maps.Copy(a, more)
	return a
}

// hold adds a hold that was released.
func (s *scene) hold(resource, owner string, fence, from, to int, more attrs) *sceneSpan {
	a := about(resource, owner, attrs{telemetry.Fence: fence, telemetry.Outcome: telemetry.OutcomeReleased})
	maps.Copy(a, more)
	return s.add(telemetry.SpanHold, from, to, a)
}

// wait adds a wait that was granted, blocked by the named holds, the last of which blocked it to the end.
func (s *scene) wait(resource, owner string, fence, from, to int, more attrs, by ...attrs) *sceneSpan {
	a := about(resource, owner, attrs{telemetry.Fence: fence, telemetry.Outcome: telemetry.OutcomeGranted})
	maps.Copy(a, more)
	if part, ok := a[telemetry.Part].(string); ok {
		a[telemetry.Part] = "run-" + owner + "/" + part
	}
	var events []sceneEvent
	for _, b := range by {
		events = append(events, sceneEvent{telemetry.EventBlockedBy, from, b})
		maps.Copy(a, b)
	}
	return s.add(telemetry.SpanWait, from, to, a, events...)
}

// step adds a part's acquire and, unless to is 0, its leave.
func (s *scene) step(resource, owner, part string, fence, from, to int, outcome string) {
	part = "run-" + owner + "/" + part
	request := attrs{telemetry.Part: part, telemetry.Order: "1.1", telemetry.Hold: fence, telemetry.Outcome: outcome, telemetry.Host: "worker-1"}
	s.add(telemetry.SpanAcquire, from-2, from, about(resource, owner, request))
	if to > 0 {
		s.add(telemetry.SpanLeave, to, to+1, about(resource, owner, attrs{telemetry.Part: part, telemetry.Order: "1.1", telemetry.Outcome: telemetry.OutcomeOK}))
	}
}

// types adds spans of Temporal's tracing interceptor.
func (s *scene) types(workflowType string, owners ...string) {
	for _, owner := range owners {
		s.add("RunWorkflow:"+workflowType, 0, 10, attrs{"temporalWorkflowID": owner, "temporalRunID": "run-" + owner})
	}
}

func heldBy(owner string, fence int) attrs {
	return attrs{telemetry.BlockedByID: lockID(owner), telemetry.BlockedByOwner: owner, telemetry.BlockedByFence: fence}
}

func (s *sceneSpan) traceID() [16]byte { return [16]byte{15: 1 + s.id%3} }
func (s *sceneSpan) spanID() [8]byte   { return [8]byte{0: 0xab, 7: s.id} }

// otlp returns the scene in OTLP's JSON.
func (s *scene) otlp(t testing.TB, perLine int) []byte {
	t.Helper()
	var out []byte
	for part := range slices.Chunk(s.spans, perLine) {
		traces := ptrace.NewTraces()
		for i := range part {
			from := &part[i]
			resource := traces.ResourceSpans().AppendEmpty()
			resource.Resource().Attributes().PutStr("service.name", from.service)
			to := resource.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
			to.SetName(from.name)
			to.SetTraceID(from.traceID())
			to.SetSpanID(from.spanID())
			to.SetStartTimestamp(stamp(from.from))
			to.SetEndTimestamp(stamp(from.to))
			require.NoError(t, to.Attributes().FromRaw(from.attrs))
			for _, e := range from.events {
				event := to.Events().AppendEmpty()
				event.SetName(e.name)
				event.SetTimestamp(stamp(e.at))
				require.NoError(t, event.Attributes().FromRaw(e.attrs))
			}
		}
		line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		require.NoError(t, err)
		out = append(append(out, line...), '\n')
	}
	return out
}

func stamp(ms int) pcommon.Timestamp {
	return pcommon.NewTimestampFromTime(begin.Add(time.Duration(ms) * time.Millisecond))
}

// jaeger returns the scene as Jaeger's query API does. Every second integer is a string.
func (s *scene) jaeger(t testing.TB) []byte {
	t.Helper()
	micros := func(ms int) int64 { return begin.Add(time.Duration(ms) * time.Millisecond).UnixMicro() }
	numbers := 0
	tags := func(a attrs) []any {
		all := []any{}
		for _, k := range slices.Sorted(maps.Keys(a)) {
			tag := map[string]any{"key": k, "type": "string", "value": a[k]}
			if n, ok := a[k].(int); ok {
				tag["type"] = "int64"
				if numbers++; numbers%2 == 0 {
					tag["value"] = strconv.Itoa(n)
				}
			}
			all = append(all, tag)
		}
		return all
	}
	byTrace := map[string][]any{}
	for i := range s.spans {
		from := &s.spans[i]
		trace := fmt.Sprintf("%x", from.traceID()[15])
		logs := []any{}
		for _, e := range from.events {
			fields := append(tags(e.attrs), map[string]any{"key": "event", "type": "string", "value": e.name})
			logs = append(logs, map[string]any{"timestamp": micros(e.at), "fields": fields})
		}
		byTrace[trace] = append(byTrace[trace], map[string]any{
			"traceID": trace, "spanID": fmt.Sprintf("%x", from.spanID()), "operationName": from.name, "processID": "p1",
			"references": []any{map[string]any{"refType": "CHILD_OF", "traceID": trace, "spanID": "1"}},
			"startTime":  micros(from.from), "duration": micros(from.to) - micros(from.from), "tags": tags(from.attrs), "logs": logs, "warnings": nil,
		})
	}
	var data []any
	for _, trace := range slices.Sorted(maps.Keys(byTrace)) {
		data = append(data, map[string]any{
			"traceID": trace, "spans": byTrace[trace], "processes": map[string]any{"p1": map[string]any{"serviceName": "payments", "tags": []any{}}},
		})
	}
	raw, err := json.MarshalIndent(map[string]any{"data": data, "total": 0, "limit": 0, "offset": 0, "errors": nil}, "", "  ")
	require.NoError(t, err)
	return raw
}

// report analyses the scene.
func (s *scene) report(t testing.TB) *Report {
	t.Helper()
	return reportOf(t, s.otlp(t, 5), Options{})
}

// reportOf analyses one file, and checks the invariants of reports.
func reportOf(t testing.TB, file []byte, o Options) *Report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "traces.json")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	return reportOfFiles(t, o, path)
}

func reportOfFiles(t testing.TB, o Options, paths ...string) *Report {
	t.Helper()
	spans, err := Read(context.Background(), paths, bytes.NewReader(nil))
	require.NoError(t, err)
	r := analyzed(t, spans, o)
	checkReport(t, r)
	return r
}

// checkReport checks the invariants of reports: places exist, no length is negative, and explained and unexplained add up to the wait.
func checkReport(t testing.TB, r *Report) {
	t.Helper()
	for i := range r.Waits {
		w := &r.Waits[i]
		length := w.End.Sub(w.Start).Seconds()
		require.GreaterOrEqual(t, length, 0.0)
		require.Less(t, w.Hold, len(r.Holds))
		explained, until := 0.0, 0.0
		for _, b := range w.Blockers {
			require.Less(t, b.Hold, len(r.Holds))
			require.GreaterOrEqual(t, b.From, 0.0)
			require.GreaterOrEqual(t, b.To, b.From)
			require.LessOrEqual(t, b.To, length+1e-9)
			explained += max(b.To-max(b.From, until), 0)
			until = max(until, b.To)
			if b.Hold >= 0 {
				require.Contains(t, r.Holds[b.Hold].Blocks, i)
			}
		}
		if w.Omitted == 0 {
			require.InDelta(t, length, explained+w.Unexplained, 1e-6, "wait %d", i)
		}
	}
	for i := range r.Holds {
		h := &r.Holds[i]
		require.False(t, h.End.Before(h.Start))
		for _, s := range h.Steps {
			require.False(t, s.End.Before(s.Start))
			require.False(t, s.Start.Before(h.Start))
			require.False(t, s.End.After(h.End))
		}
		for _, w := range h.Blocks {
			require.True(t, slices.ContainsFunc(r.Waits[w].Blockers, func(b Blocker) bool { return b.Hold == i }))
		}
	}
	checkTrees(t, r)
	require.NotEmpty(t, r.Conclusion)
}

// threeInARow: C holds account/2; B, which holds account/1, waits for it 3.1 s; A waits for B 4 s.
func threeInARow() *scene {
	s := &scene{}
	s.step("account/2", "C", "1/Charge", 20, 0, 4900, telemetry.OutcomeGranted)
	s.hold("account/2", "C", 20, 0, 5000, nil)
	s.step("account/1", "B", "1/Debit", 10, 500, 1800, telemetry.OutcomeGranted)
	s.wait("account/2", "B", 21, 1900, 5000, attrs{telemetry.Part: "2/Credit", telemetry.Position: 1}, heldBy("C", 20))
	s.step("account/2", "B", "2/Credit", 21, 5000, 5400, telemetry.OutcomeGranted)
	s.hold("account/2", "B", 21, 5000, 5500, nil)
	s.hold("account/1", "B", 10, 500, 5500, nil)
	s.wait("account/1", "A", 11, 1500, 5500, attrs{telemetry.Part: "1/Debit", telemetry.Position: 1}, heldBy("B", 10))
	s.step("account/1", "A", "1/Debit", 11, 5500, 5900, telemetry.OutcomeGranted)
	s.hold("account/1", "A", 11, 5500, 6000, nil)
	return s
}
