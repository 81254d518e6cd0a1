package contention

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

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

// messages are lines as the Collector's file exporter writes them where it compresses each alone: with their lengths before them.
func messages(lines []byte, pack func([]byte) []byte) (file []byte) {
	for line := range bytes.Lines(lines) {
		file = append(file, message(pack(bytes.TrimSpace(line)))...)
	}
	return file
}

func message(data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// Of messages that are broken each is counted; the rest is read as far as it can be found.
func TestBrokenMessagesAreCountedAndTheRestIsRead(t *testing.T) {
	t.Parallel()
	s := threeInARow()
	good := messages(s.otlp(t, 1000), func(m []byte) []byte { return zstdOf(t, m) })
	torn := bytes.Clone(good)
	for i := len(torn) / 2; i < len(torn)/2+20; i++ {
		torn[i] ^= 0xff
	}
	for name, c := range map[string]struct {
		file   []byte
		broken int
		first  string
	}{
		"cut off":              {append(bytes.Clone(good), good[:len(good)-1]...), 1, "message 2: unexpected EOF"},
		"cut off early":        {append(bytes.Clone(good), 0, 0), 1, "message 2: unexpected EOF"},
		"torn in the middle":   {append(torn, good...), 1, "message 1 cannot be decompressed: "},
		"a length that is no":  {append(bytes.Clone(good), "\xff\xff\xff\xff..."...), 1, "message 2: it is longer than a document may be"},
		"neither":              {append(bytes.Clone(good), message(zstdOf(t, []byte("hello")))...), 1, "it is neither OTLP nor"},
		"others' JSON":         {append(bytes.Clone(good), message(zstdOf(t, []byte(`{"resourceLogs":[]}`)))...), 0, ""},
		"an empty one between": {append(append(bytes.Clone(good), message(nil)...), message(zstdOf(t, []byte("{}")))...), 1, "it is neither OTLP nor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := reportOf(t, c.file, Options{})
			require.Equal(t, len(s.spans), r.Read.LockSpans)
			require.Equal(t, c.broken, r.Read.Broken)
			if c.broken > 0 {
				require.Contains(t, r.Read.Problems[0], c.first)
			}
		})
	}
}

// What becomes longer than a document may be when it is decompressed is passed over.
func TestMessageThatGrowsTooLongIsPassedOver(t *testing.T) {
	t.Parallel()
	bomb, small := zstdOf(t, make([]byte, 1<<20)), zstdOf(t, []byte("{}"))
	var got, refused []string
	file := bufio.NewReader(bytes.NewReader(append(message(bomb), message(small)...)))
	require.NoError(t, splitDocuments(file, 1<<19, func(d document) error {
		if d.err != nil {
			refused = append(refused, d.err.Error())
		} else {
			got = append(got, string(d.data))
		}
		return nil
	}))
	require.Equal(t, []string{"{}"}, got)
	require.Len(t, refused, 1)
	require.Contains(t, refused[0], "message 1 cannot be decompressed: ")
}

// The names are those of the Collector's file exporter, when it has started a new file, and of what people do with such files.
func TestFilesOfAFolderAreFoundByTheirNames(t *testing.T) {
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
