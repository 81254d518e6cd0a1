package stack

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreePortsAreDistinctAndFree(t *testing.T) {
	t.Parallel()
	ports, err := freePorts([]string{"a", "b", "c"}, nil)
	require.NoError(t, err)
	require.Len(t, ports, 3)
	seen := map[int]bool{}
	for _, port := range ports {
		require.False(t, seen[port])
		seen[port] = true
	}
}

func TestFreePortsKeepTheOldOnesThatAreFree(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", loopback+":0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	ports, err := freePorts([]string{"a"}, map[string]int{"a": port})
	require.NoError(t, err)
	require.NotEqual(t, port, ports["a"])

	before := ports["a"]
	ports, err = freePorts([]string{"a"}, map[string]int{"a": before})
	require.NoError(t, err)
	require.Equal(t, before, ports["a"])
}

func TestListensOnTellsWhoListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", loopback+":0")
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	ok, err := listensOn(os.Getpid(), port)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = listensOn(os.Getppid(), port)
	require.NoError(t, err)
	require.False(t, ok)
}
