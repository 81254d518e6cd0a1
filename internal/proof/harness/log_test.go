package harness_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

func TestReadLogs_ProcessWasKilledInALine_ReturnsWholeLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(l *harness.Log[string], line string) { l.Write(&line) }
	for _, process := range []string{"a", "b"} {
		f, err := harness.OpenLog(dir, process, func(line *string) { *line = process + *line })
		require.NoError(t, err)
		write(f, "1")
		write(f, "2")
		require.NoError(t, f.Close())
	}
	half, err := os.OpenFile(filepath.Join(dir, "a.log"), os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = half.WriteString(`"a3`)
	require.NoError(t, err)
	require.NoError(t, half.Close())
	all, err := harness.ReadLogs(dir, func(line *string) int64 { return int64((*line)[1]) })
	require.NoError(t, err)
	require.Equal(t, []string{"a1", "b1", "a2", "b2"}, all, "by the time, and those of the same time by the process")
}
