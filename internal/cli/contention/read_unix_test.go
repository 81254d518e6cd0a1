//go:build unix

package contention

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRead_CancelledAtUnopenedPipe_Returns(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "traces.json")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		_, err := Read(ctx, []string{pipe}, nil)
		done <- err
	}()
	cancel(enough)
	select {
	case err := <-done:
		require.ErrorIs(t, err, enough)
	case <-time.After(time.Minute):
		require.Fail(t, "it waits for the pipe")
	}
	other, err := os.OpenFile(pipe, os.O_RDWR, 0) // lets the goroutine that opens it end
	require.NoError(t, err)
	require.NoError(t, other.Close())
}
