package stack

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// helperArgument makes the test program a service, which the tests start like a real one.
const helperArgument = "STACK_TEST_HELPER"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == helperArgument {
		helper(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

// helper listens on an address until it is interrupted.
func helper(address string) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer l.Close()
	<-interrupted
}

// setup returns a stack in a new folder. Its parts are killed when the test ends.
func setup(t *testing.T) *Stack {
	t.Helper()
	dir := t.TempDir()
	s := New(Config{Dir: dir + "/stack", CacheDir: dir + "/cache", MongoImage: defaultMongoImage}, log.New(io.Discard, "", 0))
	require.NoError(t, os.MkdirAll(s.cfg.Dir, 0o755))
	t.Cleanup(func() {
		for _, p := range s.state.Parts {
			kill(t, p)
		}
	})
	return s
}

// helperService returns the service that runs helper.
func helperService() service {
	return service{
		name:  "helper",
		ports: []string{"main"},
		argv: func(ports map[string]int) []string {
			return []string{os.Args[0], helperArgument, hostPort(ports["main"])}
		},
		healthy: func(ctx context.Context, ports map[string]int) error {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", hostPort(ports["main"]))
			if err != nil {
				return err
			}
			return c.Close()
		},
		within: 20 * time.Second,
	}
}

// startHelper starts the helper as a part of the stack.
func startHelper(t *testing.T, s *Stack) Part {
	t.Helper()
	p, started, err := s.ensure(t.Context(), helperService())
	require.NoError(t, err)
	require.True(t, started)
	return p
}

// kill kills a part and waits until it has ended.
func kill(t *testing.T, p Part) {
	t.Helper()
	if !alive(p) {
		return
	}
	process, err := os.FindProcess(p.PID)
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	require.True(t, gone(context.Background(), p))
}
