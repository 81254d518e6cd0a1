package stack

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDisownPIDKeepsTheRestOfTheLockFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/postmaster.pid"
	require.NoError(t, disownPID(path), "a PostgreSQL that ended well leaves none")
	require.NoError(t, os.WriteFile(path, []byte("123\n/srv/cluster\n1700000000\n5432\n"), 0o600))
	require.NoError(t, disownPID(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "2147483647\n/srv/cluster\n1700000000\n5432\n", string(data))
}

func TestPostgresListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	settings := postgresSettings(1234)
	require.Contains(t, settings, "listen_addresses=127.0.0.1")
	require.Contains(t, settings, "port=1234")
	for _, s := range settings {
		require.NotContains(t, s, "fsync", "tests of durability must be honest")
	}
}
