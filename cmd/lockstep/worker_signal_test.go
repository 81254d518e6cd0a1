package main

import (
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/testenv"
)

// stuck is a worker that was stopped while it runs an activity, which waits for the database until thaw is called.
func stuck(t *testing.T) (s *served, run client.WorkflowRun, thaw func()) {
	t.Helper()
	uri, freeze, thaw := throttled(t)
	s = serve(t, "--reaper", "0", "--mongodb-uri", uri)
	freeze()
	run = s.foreign(t, func(_ workflow.Context, locks workflow.Context) error {
		_, err := call(locks, "lockstep.Release", map[string]any{"resources": []string{"account/1"}, "schedule": 1})
		return err
	})
	require.Eventually(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		return err == nil && len(d.GetPendingActivities()) == 1 && d.GetPendingActivities()[0].GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
	}, within, 20*time.Millisecond, "no activity runs")
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	require.Eventually(t, func() bool { return strings.Contains(s.stderr.String(), "lockstep: stopping") },
		within, 10*time.Millisecond, "it did not see the signal")
	return s, run, thaw
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

// throttled is the URI of a way to the database that freeze blocks and thaw opens again.
func throttled(t *testing.T) (uri string, freeze, thaw func()) {
	t.Helper()
	target, err := url.Parse(testenv.MongoURI(t))
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() }) // it is the test's
	var gate sync.RWMutex
	pass := func(to, from net.Conn) {
		defer func() { _ = to.Close() }() // the other side has gone
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
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
	return target.String(), gate.Lock, gate.Unlock
}
