package contention

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// written writes a file into a new folder, and returns its path.
func written(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func zipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func indented(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Indent(&b, data, "", "  "))
	return b.Bytes()
}

func compact(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, data))
	return b.Bytes()
}

func zstdOf(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return w.EncodeAll(data, nil)
}

func protobufOf(t testing.TB, document []byte) []byte {
	t.Helper()
	traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(document)
	require.NoError(t, err)
	data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	require.NoError(t, err)
	return data
}

// tempoOf returns a document as Tempo's query API does: protobuf's JSON, which has IDs in base64.
func tempoOf(t testing.TB, document []byte) []byte {
	t.Helper()
	var traces tracepb.TracesData
	require.NoError(t, proto.Unmarshal(protobufOf(t, document), &traces))
	text, err := protojson.Marshal(&traces)
	require.NoError(t, err)
	return compact(t, text)
}

// messages writes lines as the Collector's file exporter does if it compresses each alone: with their lengths before them.
func messages(lines []byte, pack func([]byte) []byte) (file []byte) {
	for line := range bytes.Lines(lines) {
		file = append(file, message(pack(bytes.TrimSpace(line)))...)
	}
	return file
}

func message(data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

func TestRead_EveryFormat_GivesTheSameReport(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	want := s.report(t)
	want.Read = Reading{}
	whole, lines := s.otlp(t, 1000), s.otlp(t, 2)
	for name, file := range map[string][]byte{
		"lines":              lines,
		"zstd":               zstdOf(t, lines),
		"zstd, in pieces":    append(zstdOf(t, lines[:1000]), zstdOf(t, lines[1000:])...),
		"zstd messages":      messages(lines, func(m []byte) []byte { return zstdOf(t, m) }),
		"protobuf":           messages(lines, func(m []byte) []byte { return protobufOf(t, m) }),
		"protobuf in zstd":   messages(lines, func(m []byte) []byte { return zstdOf(t, protobufOf(t, m)) }),
		"one document":       indented(t, whole),
		"documents":          append(indented(t, whole[:len(whole)-1]), indented(t, s.otlp(t, 1000))...),
		"mixed":              append(indented(t, whole), lines...),
		"without line ends":  bytes.ReplaceAll(lines, []byte("\n"), nil),
		"CRLF":               bytes.ReplaceAll(lines, []byte("\n"), []byte("\r\n")),
		"byte order mark":    append([]byte("\xef\xbb\xbf"), lines...),
		"empty lines":        bytes.ReplaceAll(lines, []byte("\n"), []byte("\n\n \n")),
		"beside logs":        append([]byte(`{"resourceLogs":[]}`+"\n{}\n"), lines...),
		"zipped":             zipped(t, lines),
		"zipped twice":       append(zipped(t, lines[:len(lines)/2]), zipped(t, lines[len(lines)/2:])...),
		"Jaeger":             s.jaeger(t),
		"Jaeger in one line": compact(t, s.jaeger(t)),
		"Jaeger twice":       append(compact(t, s.jaeger(t)), compact(t, s.jaeger(t))...),
		"Jaeger's OTLP":      append(append([]byte(`{"result":`), bytes.TrimSpace(whole)...), '}'),
		"Tempo":              bytes.Replace(tempoOf(t, whole), []byte(`"resourceSpans"`), []byte(`"batches"`), 1),
		"Tempo 2":            indented(t, fmt.Appendf(nil, `{"trace":%s,"metrics":{}}`, tempoOf(t, whole))),
		"pretty result":      indented(t, append(append([]byte(`{"result":`), whole...), '}')),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := reportOf(t, file, Options{})
			require.Zero(t, got.Read.Broken, got.Read.Problems)
			require.Zero(t, got.Read.Malformed, got.Read.Problems)
			require.Equal(t, len(s.spans), got.Read.LockSpans-got.Read.Duplicates)
			got.Read = Reading{}
			require.Equal(t, want, got)
		})
	}
}

func TestRead_BrokenDocuments_AreCountedAndSkipped(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	lines := bytes.SplitAfter(s.otlp(t, 1), []byte("\n"))
	lines = lines[:len(lines)-1]
	all, jaeger := bytes.Join(lines, nil), s.jaeger(t)
	cut := lines[0][:len(lines[0])/2]
	packed := messages(s.otlp(t, 1000), func(m []byte) []byte { return zstdOf(t, m) })
	torn := bytes.Clone(packed)
	for i := len(torn) / 2; i < len(torn)/2+20; i++ {
		torn[i] ^= 0xff
	}
	file := func(parts ...any) (file []byte) {
		for _, part := range parts {
			file = fmt.Appendf(file, "%s", part)
		}
		return file
	}
	for name, c := range map[string]struct {
		file   []byte
		broken int
		first  string
	}{
		"the last line of a killed process":      {file(all, cut), 1, ":15: broken JSON"},
		"another process went on in the line":    {file(cut, all), 1, ":1: broken JSON"},
		"or in the next":                         {file(cut, "\n", all), 1, ":1: broken JSON"},
		"cut inside of a document of many lines": {file(indented(t, lines[0])[:300], "\n", all), 1, ":1: broken JSON"},
		"a log":                                  {file("starting\n{\"level\":\"info\"}\n", all), 2, ":1: no JSON object begins here"},
		"a list":                                 {file(all, "[1,2]\n"), 1, ":15: no JSON object"},
		"zipped, and cut":                        {zipped(t, all)[:len(zipped(t, all))-4], 1, "unexpected EOF"},
		"bytes":                                  {file("\x00\x01\xff\n", all), 1, ":1: no JSON object"},
		"Jaeger, cut, and again":                 {file(compact(t, jaeger)[:200], "\n", compact(t, jaeger)), 1, ":1: broken JSON"},
		"a message cut off":                      {file(packed, packed[:len(packed)-1]), 1, "message 2: unexpected EOF"},
		"a message cut off early":                {file(packed, "\x00\x00"), 1, "message 2: unexpected EOF"},
		"a message torn in the middle":           {file(torn, packed), 1, "message 1 cannot be decompressed: "},
		"a length that is no":                    {file(packed, "\xff\xff\xff\xff..."), 1, "message 2: it is longer than a document may be"},
		"a message that is neither":              {file(packed, message(zstdOf(t, []byte("hello")))), 1, "it is neither OTLP nor"},
		"a message of others' JSON":              {file(packed, message(zstdOf(t, []byte(`{"resourceLogs":[]}`)))), 0, ""},
		"an empty message between":               {file(packed, message(nil), message(zstdOf(t, []byte("{}")))), 1, "it is neither OTLP nor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reportOf(t, c.file, Options{})
			require.Equal(t, c.broken, r.Read.Broken, r.Read.Problems)
			require.Contains(t, strings.Join(r.Read.Problems, "\n"), c.first)
			require.Equal(t, len(s.spans), r.Read.LockSpans)
			require.Equal(t, 2, r.Totals.Waited)
		})
	}

	r := reportOf(t, jaeger[:len(jaeger)*3/4], Options{})
	require.Equal(t, 1, r.Read.Broken)
	require.NotZero(t, r.Read.LockSpans, "the traces before it count")
	require.Less(t, r.Read.LockSpans, len(s.spans))
}

func TestRead_ForeignAndMalformedSpans_AreCounted(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	good := len(s.spans)
	s.add("RunActivity:Debit", 0, 10, attrs{"temporalWorkflowID": "A"})
	s.add("HTTP POST", 0, 10, nil).service = "web"
	s.add(telemetry.SpanHold, 0, 10, attrs{telemetry.Resource: "r", telemetry.LockID: "x"}) // no fence
	s.add(telemetry.SpanWait, 0, 10, attrs{telemetry.LockID: "x"})                          // no resource
	for name, file := range map[string][]byte{"OTLP": s.otlp(t, 4), "Jaeger": s.jaeger(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reportOf(t, file, Options{})
			require.Equal(t, good+4, r.Read.Spans)
			require.Equal(t, good+2, r.Read.LockSpans)
			require.Equal(t, 2, r.Read.Malformed)
			require.Len(t, r.Read.Problems, 1)
			require.Contains(t, r.Read.Problems[0], "lacks lock.")
			require.Len(t, r.Waits, 2)
		})
	}
}

func TestRead_FoldersAndStandardInput(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	lines := bytes.SplitAfter(s.otlp(t, 1), []byte("\n"))
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"a.json": lines[0], "b.jsonl": lines[1], "deeper/c.json": lines[2], "d.JSON.gz": zipped(t, lines[3]), "e.txt": []byte("not read"), "f.gz": {1},
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	stdin := bytes.NewReader(bytes.Join(lines[4:], nil))
	spans, err := Read(t.Context(), []string{dir, "-"}, stdin)
	require.NoError(t, err)
	require.NoError(t, spans.Empty())
	r := analyzed(t, spans, Options{})
	require.Equal(t, 5, r.Read.Files)
	require.Zero(t, r.Read.Broken)
	require.Equal(t, len(s.spans), r.Read.LockSpans)
}

func TestRead_NothingUsable_ReturnsReason(t *testing.T) {
	t.Parallel()
	_, err := Read(t.Context(), []string{"/no/such/file"}, nil)
	require.EqualError(t, err, "/no/such/file: there is no such file or folder")
	_, err = Read(t.Context(), []string{t.TempDir()}, nil)
	require.ErrorContains(t, err, "there is no *.json or *.jsonl")

	for name, c := range map[string]struct{ file, want string }{
		"nothing":       {"", "there are no spans at all in 1 file. Do the workers export traces"},
		"others' spans": {`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"web"}}]},"scopeSpans":[{"spans":[{"name":"GET /"}]}]}]}`, `among 1 span of "web", such as "GET /". Do the workers`},
		"no traces":     {"hello\nworld\n", "2 broken lines (the first: "},
		"unusable":      {`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"lock.hold"}]}]}]}`, "1 lack what they need (the first: "},
		"broken zstd":   {"\x28\xb5\x2f\xfd0000", "1 broken line (the first: "},
		"protobuf":      {"\x00\x00\x00\x04\n000", "1 broken line (the first: "},
	} {
		spans, err := Read(t.Context(), []string{written(t, "x.json", []byte(c.file))}, nil)
		require.NoError(t, err, name)
		err = spans.Empty()
		require.ErrorIs(t, err, ErrNoLockSpans, name)
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestRead_TooLongDocument_IsSkipped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want, refused string }{
		"a line":     {`{"a":"` + strings.Repeat("x", 2000) + "\"}\n{\"b\":1}\n", `{"b":1}`, "it is longer"},
		"many lines": {"{\n" + strings.Repeat("  \"a\":1,\n", 200) + "\n{\"data\":1}\n", `{"data":1}`, "it is longer"},
		"at the end": {"{\"b\":1}\n{" + strings.Repeat("x", 2000), `{"b":1}`, "it is longer"},
		"a message":  {string(message(zstdOf(t, make([]byte, 1<<20)))) + string(message(zstdOf(t, []byte("{}")))), "{}", "message 1 cannot be decompressed: "},
	} {
		var got, refused []string
		splitDocuments(&counter{}, bufio.NewReaderSize(strings.NewReader(c.in), 16), 1024, func(d document) {
			if d.err != nil {
				refused = append(refused, d.err.Error())
			} else {
				got = append(got, string(d.data))
			}
		})
		require.Equal(t, []string{c.want}, got, name)
		require.NotEmpty(t, refused, name)
		require.Contains(t, refused[0], c.refused, name)
	}
}

func TestRead_MoreThanMaxSpans_IsRefused(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	path := written(t, "x.json", s.otlp(t, 3))
	n := len(s.spans)
	_, err := read(t.Context(), []string{path}, nil, n)
	require.NoError(t, err)
	_, err = read(t.Context(), []string{path}, nil, n-1)
	require.ErrorContains(t, err, "there are 14 spans of locks: a report is made of 13 at most")
}

// FuzzRead checks that no input makes the readers panic or breaks the invariants of reports.
func FuzzRead(f *testing.F) {
	s := threeInARow()
	f.Add(s.otlp(f, 4))
	f.Add(s.jaeger(f))
	f.Add(indented(f, s.otlp(f, 1000)))
	f.Add([]byte(`{"resourceSpans":[{"scop` + "\n" + `{"data":[{"spans":[{"operationName":"lock.hold","startTime":"1e30","duration":-5,"tags":[{"key":"lock.fence","value":{}}]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spans, err := Read(context.Background(), []string{"-"}, bytes.NewReader(data))
		require.NoError(t, err)
		_ = spans.Empty()
		r := analyzed(t, spans, Options{})
		checkReport(t, r)
		var b bytes.Buffer
		require.NoError(t, WriteTable(&b, r, 10))
		require.NotContains(t, b.String(), "\x1b")
		require.NoError(t, WriteJSON(&b, r))
	})
}

// The files are from one run of the demo: its own traces, and the answer of Jaeger 1.62 to /api/traces?service=lockstep-demo-worker.
func TestRead_RealJaeger_EqualsOTLP(t *testing.T) {
	t.Parallel()
	report := func(file string) *Report {
		spans, err := Read(t.Context(), []string{filepath.Join("testdata", "real", file)}, nil)
		require.NoError(t, err)
		r := analyzed(t, spans, Options{})
		require.Zero(t, r.Read.Broken+r.Read.Malformed)
		r.Read = Reading{}
		return r
	}
	otlp, jaeger := report("otlp.jsonl.gz"), report("jaeger-1.62.json.gz")
	require.Len(t, otlp.Holds, 18)
	require.Len(t, otlp.Waits, 10)
	for i := range otlp.Waits {
		require.Equal(t, otlp.Waits[i].LockID, jaeger.Waits[i].LockID)
		require.Equal(t, otlp.Waits[i].Span, jaeger.Waits[i].Span)
		require.NotEmpty(t, jaeger.Waits[i].Blockers)
		for j, b := range otlp.Waits[i].Blockers {
			b.From, b.To = jaeger.Waits[i].Blockers[j].From, jaeger.Waits[i].Blockers[j].To // it keeps microseconds
			require.Equal(t, b, jaeger.Waits[i].Blockers[j])
		}
	}
	require.InDelta(t, otlp.Totals.Wait.Total, jaeger.Totals.Wait.Total, 0.001)
	require.InDelta(t, otlp.Totals.Hold.Total, jaeger.Totals.Hold.Total, 0.001)
}

// The names include the ones that the Collector's file exporter gives.
func TestRead_Folder_SelectsFilesByName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"traces.json": true, "traces-2026-09-14T05-02-14.173.json": true, "TRACES.JSONL": true, "traces.json.gz": true, "traces.json.zst": true,
		"traces.json-2026-09-14T05-02-14.173.zst": true, "traces.jsonl-2026-09-14T05-02-14.173-size.gz": true,
		"traces.zst": false, "traces.gz": false, "notes.json.bak": false, "traces.tar.gz": false, "a.json-2/x.gz": false,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, threeInARow().otlp(t, 10), 0o600))
		_, err := Read(t.Context(), []string{dir}, nil)
		require.Equal(t, want, err == nil, "%s: %v", name, err)
	}
}

// The folder is a link, its file is a link, and another link leads back to it.
func TestRead_Links_AreFollowed(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	file := written(t, "traces.json", s.otlp(t, 3))
	folder, linked := t.TempDir(), filepath.Join(t.TempDir(), "linked")
	require.NoError(t, os.Symlink(file, filepath.Join(folder, "a.json")))
	require.NoError(t, os.Symlink(folder, filepath.Join(folder, "again.json")))
	require.NoError(t, os.Symlink(folder, linked))
	for _, path := range []string{folder, linked, linked + "/"} {
		r := reportOfFiles(t, Options{}, path)
		require.Equal(t, 1, r.Read.Files)
		require.Equal(t, len(s.spans), r.Read.LockSpans)
		require.Zero(t, r.Read.Unreadable)
	}
}

// An unreadable file is fatal only if it was named itself, or is the only one.
func TestRead_UnreadableFileInFolder_IsCounted(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	file := written(t, "traces.json", s.otlp(t, 3))
	folder := filepath.Dir(file)
	gone := filepath.Join(folder, "gone.json")
	require.NoError(t, os.Symlink("/no/such/file", gone))
	r := reportOfFiles(t, Options{}, folder)
	require.Equal(t, 1, r.Read.Unreadable)
	require.Equal(t, []string{gone + ": there is no such file or folder"}, r.Read.Problems)
	require.Equal(t, len(s.spans), r.Read.LockSpans)

	require.NoError(t, os.Remove(file))
	for _, path := range []string{folder, gone} {
		_, err := Read(t.Context(), []string{path}, nil)
		require.EqualError(t, err, gone+": there is no such file or folder")
	}
}

func TestRead_CancelledAtBlockedStdin_Returns(t *testing.T) {
	t.Parallel()
	stdin, other := io.Pipe()
	defer func() { _ = other.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		_, err := Read(ctx, []string{"-"}, stdin)
		done <- err
	}()
	for _, part := range []string{string(threeInARow().otlp(t, 3)), "{"} { // incomplete
		_, err := io.WriteString(other, part) // returns when it is read
		require.NoError(t, err)
	}
	cancel(enough)
	select {
	case err := <-done:
		require.ErrorIs(t, err, enough)
	case <-time.After(time.Minute):
		require.Fail(t, "it waits for the pipe")
	}
}
