//go:build unix

package tracefile_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/worker/tracefile"
)

// childVariable makes this test binary a process that writes spans: the name of one of children.
const (
	childVariable  = "LOCKSTEP_TEST_CHILD"
	folderVariable = "LOCKSTEP_TEST_FOLDER"
)

var children = map[string]func(folder string) error{"forever": writeForever, "limited": writeOnFullDisk, "nobody": writeAsNobody}

func TestMain(m *testing.M) {
	if child := children[os.Getenv(childVariable)]; child != nil {
		if err := child(os.Getenv(folderVariable)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

func childProcess(ctx context.Context, name, folder string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+name, folderVariable+"="+folder)
	return cmd
}

// writeForever writes spans in batches, and prints a line after each hundred.
func writeForever(folder string) error {
	provider, err := tracefile.NewTracerProvider(context.Background(), folder, tracefile.Options{MaxFileBytes: 1 << 20})
	if err != nil {
		return err
	}
	for i := 1; ; i++ {
		writeSpan(provider, fmt.Sprintf("%d/%d", os.Getpid(), i))
		if i%100 == 0 {
			if err := provider.ForceFlush(context.Background()); err != nil {
				return err
			}
			fmt.Println(i)
		}
	}
}

func TestNewTracerProvider_ProcessKilled_FolderIsRead(t *testing.T) {
	t.Parallel()
	const flushes = 8
	folder := t.TempDir()
	killed := map[int]int{} // the number of spans that each process had flushed, at least
	for range 2 {
		cmd := childProcess(t.Context(), "forever", folder)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range flushes {
			require.True(t, lines.Scan(), lines.Err())
		}
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		killed[cmd.Process.Pid] = 100 * flushes
	}
	r := report(t, folder)
	require.LessOrEqual(t, r.Read.Broken, len(killed), "the last line of each process")
	read := map[int]int{}
	for _, w := range r.Waits {
		var process, number int
		_, err := fmt.Sscanf(w.LockID, "%d/%d", &process, &number)
		require.NoError(t, err)
		read[process]++
	}
	for process, flushed := range killed {
		require.GreaterOrEqual(t, read[process], flushed)
	}
}

// writeOnFullDisk writes spans until a limit of the process refuses a part of a line, as a full disk does, and again when there is
// room.
func writeOnFullDisk(folder string) error {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	full := limit
	full.Cur = 10_000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		return err
	}
	exporter, err := tracefile.New(context.Background(), folder, tracefile.Options{})
	if err != nil {
		return err
	}
	f := &failures{SpanExporter: exporter}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(f))
	written := 0
	for ; f.error() == nil; written++ {
		writeSpan(provider, fmt.Sprint(written))
	}
	var refused *tracefile.FolderError
	if err := f.error(); !errors.As(err, &refused) || !errors.Is(err, syscall.EFBIG) {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	writeSpan(provider, "with room again")
	writeSpan(provider, "and later")
	return provider.Shutdown(context.Background())
}

func TestNew_DiskIsFullInALine_NextLineIsWhole(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	out, err := childProcess(t.Context(), "limited", folder).CombinedOutput()
	require.NoError(t, err, string(out))
	r := report(t, folder)
	require.Equal(t, 1, r.Read.Broken)
	var read []string
	for _, w := range r.Waits {
		read = append(read, w.LockID)
	}
	require.Subset(t, read, []string{"0", "with room again", "and later"})

	files := traceFiles(t, folder)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	whole := 0
	for line := range bytes.Lines(text) {
		if json.Valid(line) {
			whole++
		}
	}
	require.Equal(t, len(read), whole, "no line begins within the torn one, for readers that read line by line")
}

// writeAsNobody makes an exporter as a user who may not write to the folder.
func writeAsNobody(folder string) error {
	if os.Getuid() == 0 {
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	_, err := tracefile.New(context.Background(), folder, tracefile.Options{})
	var refused *tracefile.FolderError
	if !errors.As(err, &refused) || !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("want a FolderError that matches fs.ErrPermission: %w", err)
	}
	fmt.Print(err)
	return nil
}

func TestNew_NoPermission_ErrorHasTheRemedy(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	require.NoError(t, os.Chmod(parent, 0o500))
	folder := filepath.Join(parent, "traces")
	out, err := childProcess(t.Context(), "nobody", folder).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, `^tracefile: traces cannot be written to the folder .*/traces: .*permission denied: allow user ID \d+ to make files there, or name another folder$`, string(out))
}
