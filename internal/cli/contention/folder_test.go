package contention

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A link to a folder, whose files are links and in which a link leads back, is read as the folder is.
func TestLinksAreFollowed(t *testing.T) {
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

// What cannot be opened in a folder is told, and the rest is read; it is fatal where it is all there is, or was named itself.
func TestWhatCannotBeOpenedAmongOthersIsCounted(t *testing.T) {
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
		var refused *InputError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, gone, refused.Path)
	}
}

// Who gives up does not wait for a pipe whose other end hangs.
func TestReadingAHangingPipeEndsWhenItIsCancelled(t *testing.T) {
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
	for _, part := range []string{string(threeInARow().otlp(t, 3)), "{"} { // whose end does not come
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
