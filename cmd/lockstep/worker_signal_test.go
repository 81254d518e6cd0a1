package main

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// stuck is a worker that was stopped while it runs an activity, which waits for the database until thaw is called.
func stuck(t *testing.T) (s *served, run client.WorkflowRun, thaw func()) {
	t.Helper()
	uri, gate, asked := throttled(t, "account/1")
	s = serve(t, "--janitor", "0", "--mongodb-uri", uri)
	gate.Lock()
	run = s.foreign(t, func(_ workflow.Context, locks workflow.Context) error {
		_, err := call(locks, "lockstep.Release", map[string]any{"resources": []string{"account/1"}, "schedule": 1})
		return err
	})
	// That the activity has started says the server before the worker has it; one that is stopped then never gets it.
	select {
	case <-asked:
	case <-time.After(within):
		require.Fail(t, "no activity asks the database")
	}
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	require.Eventually(t, func() bool { return strings.Contains(s.stderr.String(), "lockstep: stopping") },
		within, 10*time.Millisecond, "it did not see the signal")
	return s, run, gate.Unlock
}

func TestAWorkerThatIsStoppedEndsWhatItRuns(t *testing.T) {
	t.Parallel()
	s, run, thaw := stuck(t)
	thaw()
	require.NoError(t, get(t, run))
	require.Equal(t, 0, s.wait(t), "%s", s.stderr)
}

func TestASecondInterruptEndsTheWorkerAtOnce(t *testing.T) {
	t.Parallel()
	s, run, thaw := stuck(t)
	defer thaw()
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, -1, s.wait(t), "it was ended by the signal, and did not wait for the activity: %s", s.stderr)
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
}

// throttled is the URI of a way to the database that is blocked while the gate is locked, and asked is closed when something
// with the word in it has come to the gate.
func throttled(t *testing.T, word string) (uri string, gate *sync.RWMutex, asked <-chan struct{}) {
	t.Helper()
	target, err := url.Parse(testenv.MongoURI(t))
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() }) // it is the test's
	gate = &sync.RWMutex{}
	came, once := make(chan struct{}), sync.Once{}
	pass := func(to, from net.Conn) {
		defer func() { _ = to.Close() }() // the other side has gone
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			if bytes.Contains(buffer[:n], []byte(word)) {
				once.Do(func() { close(came) })
			}
			gate.RLock()
			_, failed := to.Write(buffer[:n])
			gate.RUnlock()
			if err != nil || failed != nil {
				return
			}
		}
	}
	host := target.Host
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
			if err != nil {
				_ = in.Close() // the worker is told so
				continue
			}
			go pass(out, in)
			go pass(in, out)
		}
	}()
	target.Host = listener.Addr().String()
	target.RawQuery = "directConnection=true"
	return target.String(), gate, came
}
