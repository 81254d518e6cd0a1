package jsonlog_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/jsonlog"
)

func TestRead_ProcessWasKilledInALine_ReturnsWholeLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, process := range []string{"a", "b"} {
		f, err := jsonlog.Open(dir, process)
		require.NoError(t, err)
		f.Append(process + "1")
		f.Append(process + "2")
		require.NoError(t, f.Close())
	}
	half, err := os.OpenFile(filepath.Join(dir, "a.log"), os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = half.WriteString(`"a3`)
	require.NoError(t, err)
	require.NoError(t, half.Close())
	all, err := jsonlog.Read[string](dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a1", "a2", "b1", "b2"}, all)
}
