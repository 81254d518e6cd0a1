package contention

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// repeated returns a document with many copies of a part.
func repeated(begin, part string, n int, end string) []byte {
	return slices.Concat([]byte(begin), bytes.Repeat([]byte(part), n), []byte(end))
}

// nested returns a message in protobuf whose span has an attribute of so many levels.
func nested(levels int) []byte {
	size := 0
	var heads [][]byte // the innermost first
	wrap := func(numbers ...protowire.Number) {
		for _, number := range numbers {
			head := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(size))
			heads, size = append(heads, head), size+len(head)
		}
	}
	for range levels {
		wrap(1, 5) // a value in a list, which is a value
	}
	wrap(2, 9, 2, 2, 1) // of an attribute, of a span, of a scope, of a resource, of a request
	slices.Reverse(heads)
	return bytes.Join(heads, nil)
}

// framed returns a file of one message.
// A file from elsewhere must not end the process, or take the machine's memory.
func TestRead_HostileFile_IsRefusedByName(t *testing.T) {
	const value = `{"resourceSpans":[{"resource":{"attributes":[{"key":"a","value":`
	bomb := zstdOf(t, repeated(`{"resourceSpans":[{"schemaUrl":"`, "a", 40<<20, `"}]}`)) // without a span
	empty := repeated("", "\x0a\x00", 3<<20, "")                                         // requests with an empty list of spans each
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"deep lists":            {repeated(value, `{"arrayValue":{"values":[`, 1<<20, ""), "nested more deeply"},
		"deep objects":          {repeated(value, `{"kvlistValue":{"values":[{"key":"a","value":`, 1<<20, ""), "nested more deeply"},
		"deep in Jaeger's":      {repeated(`{"data":[{"spans":[{"tags":[{"key":"a","value":`, "[", 2<<20, ""), "nested more deeply"},
		"deep in Tempo's":       {repeated(`{"batches":`, "[", 2<<20, ""), "nested more deeply"},
		"deep protobuf":         {message(nested(1 << 20)), "nested more deeply"},
		"many spans":            {repeated(`{"resourceSpans":[{"scopeSpans":[{"spans":[`, "{},", 2100000, "{}]}]}]}"), "more values"},
		"many nulls":            {repeated(`{"resourceSpans":[`, "null,", 2100000, "null]}"), "more values"},
		"many of Jaeger's":      {repeated(`{"data":[{"spans":[`, "{},", 2100000, "{}]}]}"), "more values"},
		"many of its processes": {repeated(`{"data":[{"processes":{`, `"":{},`, 2100000, `"":{}}}]}`), "more values"},
		"many in protobuf":      {message(empty), "more values"},
		"long":                  {repeated(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"`, "a", 65<<20, `"}]}]}]}`), "longer than a document may be (64 MiB)"},
		"compressed long":       {zipped(t, repeated(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"`, "a", 80<<20, `"}]}]}]}`)), "400 times its size"},
		"compressed messages":   {slices.Concat(message(bomb), message(bomb)), "message 2: it expands to more than 400 times its size"},
		"compressed many":       {zipped(t, repeated(`{"resourceSpans":[`, "{},", 28<<20, "{}]}")), "400 times its size"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			path := written(t, "hostile.json", c.content)
			c.content = nil
			runtime.GC()
			runtime.ReadMemStats(&before)
			spans, err := Read(t.Context(), []string{path}, nil)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			err = spans.Empty()
			require.ErrorIs(t, err, ErrNoLockSpans)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, c.want)
			require.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(700), "MiB, in all and not at once")
		})
	}
}

// inUse returns the MiB of the heap that are in use.
func inUse() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.GC() // of what pools of buffers keep, too
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc) >> 20
}

// Long texts compress well: 60 lines of 43 MB each are a file of 20 MB.
func TestRead_LongTexts_AreNotKept(t *testing.T) {
	const long, lines = 4 << 20, 8
	for name, c := range map[string]struct {
		name, attribute string
		want            string
	}{
		"a lock ID":           {telemetry.SpanHold, telemetry.LockID, "traces.json:1: span 0000000000000001 of trace 00000000000000000000000000000002 has more than 1,500 bytes in lock.id"},
		"an owner":            {telemetry.SpanWait, telemetry.Owner, "has more than 1,500 bytes in lock.owner"},
		"a name":              {"RunWorkflow:" + strings.Repeat("n", long), "temporalRunID", "lock spans were found"},
		"a workflow":          {"RunWorkflow:W", "temporalWorkflowID", "lock spans were found"},
		"in an event":         {telemetry.SpanWait, "event", "has more than 1,500 bytes in lock.blocked_by.id"},
		"the names of others": {strings.Repeat("n", long), "a", "lock spans were found"},
	} {
		t.Run(name, func(t *testing.T) {
			var content []byte
			for i := range lines {
				text := func(key string, size int) string {
					return fmt.Sprintf(`{"key":%q,"value":{"stringValue":"%d%s"}}`, key, i, strings.Repeat("a", size))
				}
				spanName := c.name
				if len(spanName) >= long {
					spanName += fmt.Sprint(i)
				}
				attributes, events := text(c.attribute, long), ""
				if c.attribute == "event" {
					attributes, events = text(telemetry.LockID, 1), fmt.Sprintf(`{"name":%q,"attributes":[%s]}`, telemetry.EventBlockedBy, text(telemetry.BlockedByID, long))
				}
				content = fmt.Appendf(content, `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"%032x","spanId":"%016x","name":%q,`+
					`"startTimeUnixNano":"1","endTimeUnixNano":"2","attributes":[{"key":"lock.resource","value":{"stringValue":"r"}},%s],"events":[%s]}]}]}]}`+"\n",
					2, i+1, spanName, attributes, events)
			}
			path := written(t, "traces.json", content)
			before := inUse()
			spans, err := Read(t.Context(), []string{path}, nil)
			require.NoError(t, err)
			require.ErrorContains(t, spans.Empty(), c.want)
			require.Equal(t, lines, spans.reading.Spans)
			require.Less(t, inUse()-before, int64(10), "MiB")
			runtime.KeepAlive(spans)
		})
	}
}

// What comes close to the bounds is read, and takes a few hundred MiB.
func TestRead_LargeFile_IsWithinBounds(t *testing.T) {
	span := `{"traceId":"11111111111111111111111111111111","spanId":"2222222222222222","name":"` + strings.Repeat("a", 60) + `","attributes":[{"key":"k","value":{"stringValue":"v"}}]},`
	path := written(t, "large.json", repeated(`{"resourceSpans":[{"scopeSpans":[{"spans":[`, span, 300_000, span[:len(span)-1]+`]}]}]}`))
	spans, err := Read(t.Context(), []string{path}, nil)
	require.NoError(t, err)
	require.Equal(t, 300_001, spans.reading.Spans)
	require.Zero(t, spans.reading.Broken)
}

func FuzzCheckBounds_Deep_IsRefused(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":"\"]"}]}`), 40)
	f.Add([]byte(`{"a\\":[],"b":[[1,2]]}`), 100)
	f.Add(nested(3), 1)
	f.Fuzz(func(t *testing.T, document []byte, levels int) {
		_ = checkBounds(document)
		if !json.Valid(document) || levels < 0 || levels > 2*maxNesting {
			return
		}
		deep := repeated(strings.Repeat("[", levels), string(document), 1, strings.Repeat("]", levels))
		if err := checkJSON(deep); levels > maxNesting {
			require.ErrorIs(t, err, errTooDeep)
		} else if levels == 0 && len(document) < 1000 && bytes.Count(document, []byte("{"))+bytes.Count(document, []byte("[")) < maxNesting {
			require.NotErrorIs(t, err, errTooDeep)
		}
	})
}
