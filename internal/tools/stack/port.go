package stack

import (
	"fmt"
	"net"
	"strconv"
)

const loopback = "127.0.0.1"

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

func portFree(port int) bool {
	l, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// freePorts picks a port for each name: the one that it had before if that is still free, any free one otherwise.
// Another process may take one before it is used, so the caller must be ready to ask again.
func freePorts(names []string, before map[string]int) (map[string]int, error) {
	ports := make(map[string]int, len(names))
	for _, name := range names {
		want := before[name]
		if want != 0 && !portFree(want) {
			want = 0
		}
		// All are held until all are picked, so that no two names get the same one.
		l, err := net.Listen("tcp", hostPort(want))
		if err != nil {
			return nil, fmt.Errorf("no free port on %s: %w", loopback, err)
		}
		defer l.Close()
		ports[name] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
