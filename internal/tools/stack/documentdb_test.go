package stack

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocumentDBPossible_Host_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		host host
		err  string
	}{
		"another system":    {host{os: "darwin"}, "this is darwin"},
		"another Linux":     {host{os: "linux", id: "ubuntu"}, `this is "ubuntu"`},
		"not root":          {host{os: "linux", id: "debian", uid: 1000}, "this is user 1000"},
		"a plain container": {host{os: "linux", id: "debian"}, "--privileged"},
		"Debian as root":    {host{os: "linux", id: "debian", mounts: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := documentDBPossible(tt.host)
			if tt.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.err)
		})
	}
}

func TestDisownPID_LockFile_KeepsOtherLines(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/postmaster.pid"
	require.NoError(t, disownPID(path), "after a clean end there is no file")
	require.NoError(t, os.WriteFile(path, []byte("123\n/srv/cluster\n1700000000\n5432\n"), 0o600))
	require.NoError(t, disownPID(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "2147483647\n/srv/cluster\n1700000000\n5432\n", string(data))
}

func TestPostgresSettings_Port_IsOnLoopbackAndDurable(t *testing.T) {
	t.Parallel()
	settings := postgresSettings(1234)
	require.Contains(t, settings, "listen_addresses=127.0.0.1")
	require.Contains(t, settings, "port=1234")
	for _, s := range settings {
		require.NotContains(t, s, "fsync", "tests of durability need it")
	}
}
