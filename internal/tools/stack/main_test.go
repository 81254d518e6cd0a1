package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// helperVariable makes the test program a service: the tests start it as real parts are started.
const helperVariable = "STACK_TEST_HELPER"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == helperVariable {
		helper(os.Args[2:])
		return
	}
	goleak.VerifyTestMain(m)
}

// helper listens on an address until it is told to end. One called "stubborn" does not listen to that.
func helper(args []string) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer l.Close()
	for {
		<-terminated
		if len(args) == 1 || args[1] != "stubborn" {
			return
		}
	}
}

// setup returns a stack in a folder of its own; whatever the test starts is ended with it.
func setup(t *testing.T) *Stack {
	t.Helper()
	progress := NewProgress(io.Discard)
	dir := t.TempDir()
	s := New(Config{Dir: dir + "/stack", CacheDir: dir + "/cache", MongoImage: defaultMongoImage}, progress)
	require.NoError(t, os.MkdirAll(s.cfg.Dir, 0o755))
	t.Cleanup(func() {
		for _, p := range s.state.Parts {
			kill(t, p)
		}
		progress.Close()
	})
	return s
}

// service returns one that the test program can be.
func helperService(args ...string) service {
	return service{
		name:  "helper",
		ports: []string{"main"},
		argv: func(ports map[string]int) []string {
			return append([]string{os.Args[0], helperVariable, hostPort(ports["main"])}, args...)
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

// kill ends a part in the rudest way, and returns when it has ended.
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
