package inspect

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// workerList is a Temporal server with one task queue. If short is set, it answers with the list that servers have from 1.31 on, in pages of
// one worker.
type workerList struct {
	Frontend
	short   bool
	listed  []*workerpb.WorkerHeartbeat
	pollers []string
	denied  error
	// polled is the time of the last poll of all pollers.
	polled time.Time
}

func (s *workerList) ListWorkers(_ context.Context, in *workflowservice.ListWorkersRequest, _ ...grpc.CallOption) (*workflowservice.ListWorkersResponse, error) {
	answer := &workflowservice.ListWorkersResponse{}
	if !s.short {
		for _, w := range s.listed {
			answer.WorkersInfo = append(answer.WorkersInfo, &workerpb.WorkerInfo{WorkerHeartbeat: w}) //nolint:staticcheck // as older servers do
		}
		return answer, s.denied
	}
	page := len(in.GetNextPageToken())
	if page < len(s.listed) {
		w := s.listed[page]
		answer.Workers = []*workerpb.WorkerListInfo{{
			TaskQueue: w.GetTaskQueue(), WorkerIdentity: w.GetWorkerIdentity(), Status: w.GetStatus(), Plugins: w.GetPlugins(),
		}}
	}
	if page+1 < len(s.listed) {
		answer.NextPageToken = make([]byte, page+1)
	}
	return answer, s.denied
}

func (s *workerList) DescribeTaskQueue(_ context.Context, in *workflowservice.DescribeTaskQueueRequest, _ ...grpc.CallOption) (*workflowservice.DescribeTaskQueueResponse, error) {
	answer := &workflowservice.DescribeTaskQueueResponse{}
	for i, identity := range s.pollers {
		if (i%2 == 0) == (in.GetTaskQueueType() == enumspb.TASK_QUEUE_TYPE_ACTIVITY) {
			answer.Pollers = append(answer.Pollers, &taskqueuepb.PollerInfo{Identity: identity, LastAccessTime: timestamppb.New(s.polled)})
		}
	}
	return answer, nil
}

func (s *workerList) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest, ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{
		Capabilities: &namespacepb.NamespaceInfo_Capabilities{WorkerHeartbeats: true},
	}}, nil
}

// A janitor whose process was killed holds its lock until that ends: the doctor must not say that it works.
func TestJanitorFinding_LateRenewal_IsAWarning(t *testing.T) {
	t.Parallel()
	for silent, want := range map[time.Duration]Finding{
		4 * time.Second: {State: OK, What: "one works on worker-1: it renewed its lock 4 s ago, as it does every 10 s"},
		11 * time.Second: {
			State: Warning, What: "that on worker-1 has not renewed its lock for 11 s, as it should every 10 s: its process may have died",
			Advice: "the janitor of another worker takes over once that lock has ended, in 19 s, if a worker runs",
		},
	} {
		found, err := janitorFinding(&lockcore.Status{Holder: lockcore.Holder{Host: "worker-1", Silent: silent, ExpiresIn: 30*time.Second - silent}})
		require.NoError(t, err)
		require.Equal(t, want, found)
	}
}

func TestWorkers_HeartbeatsAndPollers_AreCompared(t *testing.T) {
	t.Parallel()
	const running, stopping, stopped = enumspb.WORKER_STATUS_RUNNING, enumspb.WORKER_STATUS_SHUTTING_DOWN, enumspb.WORKER_STATUS_SHUTDOWN
	heartbeat := func(identity string, with bool, state enumspb.WorkerStatus, age time.Duration) *workerpb.WorkerHeartbeat {
		w := &workerpb.WorkerHeartbeat{TaskQueue: "q", WorkerIdentity: identity, Status: state, HeartbeatTime: timestamppb.New(time.Now().Add(-age))}
		w.Plugins = []*workerpb.PluginInfo{{Name: "another"}}
		if with {
			w.Plugins = append(w.Plugins, &workerpb.PluginInfo{Name: wire.PluginName})
		}
		return w
	}
	a, b := heartbeat("a", true, running, 0), heartbeat("b", true, running, 0)
	for name, c := range map[string]struct {
		listed  []*workerpb.WorkerHeartbeat
		pollers []string
		state   string
		want    string
		aged    bool // the short list has no times
	}{
		"all have it":                    {listed: []*workerpb.WorkerHeartbeat{a, b}, pollers: []string{"a", "b"}, state: OK, want: "on 1 task queue every poller has Lockstep"},
		"one lacks it":                   {listed: []*workerpb.WorkerHeartbeat{a, heartbeat("c", false, running, 0)}, pollers: []string{"a", "c"}, state: Broken, want: "with it: q (c)"},
		"two of one identity":            {listed: []*workerpb.WorkerHeartbeat{a, heartbeat("a", false, running, 0)}, pollers: []string{"a"}, state: Broken, want: "with it: q (a)"},
		"one has no heartbeat":           {listed: []*workerpb.WorkerHeartbeat{a}, pollers: []string{"a", "c"}, state: Unknown, want: "with Lockstep: q (c)"},
		"one lacks it and one is silent": {listed: []*workerpb.WorkerHeartbeat{a, heartbeat("c", false, running, 0)}, pollers: []string{"a", "c", "d"}, state: Broken, want: "with it: q (c)"},
		"it lacks it and is stopping":    {listed: []*workerpb.WorkerHeartbeat{a, heartbeat("c", false, stopping, 0)}, pollers: []string{"a", "c"}, state: OK, want: "on 1 task queue"},
		"it lacks it and has stopped":    {listed: []*workerpb.WorkerHeartbeat{a, heartbeat("c", false, stopped, 0)}, pollers: []string{"a", "c"}, state: OK, want: "on 1 task queue"},
		"it lacked it and was killed":    {listed: []*workerpb.WorkerHeartbeat{a, heartbeat("c", false, running, 0)}, pollers: []string{"a"}, state: OK, want: "on 1 task queue"},
		"killed, and its name is reused": {listed: []*workerpb.WorkerHeartbeat{a, heartbeat("a", false, running, time.Hour)}, pollers: []string{"a"}, state: OK, want: "on 1 task queue", aged: true},
		"slow clock":                     {listed: []*workerpb.WorkerHeartbeat{heartbeat("a", true, running, time.Hour)}, pollers: []string{"a"}, state: OK, want: "on 1 task queue"},
		"nobody has it":                  {listed: []*workerpb.WorkerHeartbeat{heartbeat("c", false, running, 0)}, pollers: []string{"c"}, state: Warning, want: "no worker with the plugin"},
		"the one with it was killed":     {listed: []*workerpb.WorkerHeartbeat{a, heartbeat("c", false, running, 0)}, pollers: []string{"c"}, state: Warning, want: "no worker with the plugin"},
		"nobody":                         {state: Warning, want: "no worker with the plugin"},
	} {
		for _, short := range []bool{false, true} {
			if short && c.aged {
				continue
			}
			d := Doctor{Site: Site{Temporal: Temporal{Service: &workerList{short: short, listed: c.listed, pollers: c.pollers}}}}
			found, err := d.workers(t.Context())
			require.NoError(t, err, name)
			require.Equal(t, c.state, found.State, name)
			require.Contains(t, found.What, c.want, name)
			require.Equal(t, c.state != OK, found.Advice != "", name)
		}
	}
	killed := &workerList{listed: []*workerpb.WorkerHeartbeat{a, heartbeat("c", false, running, 0)}, pollers: []string{"a", "c"}, polled: time.Now().Add(-3 * time.Minute)}
	found, err := (&Doctor{Site: Site{Temporal: Temporal{Service: killed}}}).workers(t.Context())
	require.NoError(t, err)
	require.Equal(t, "workers without Lockstep poll task queues of workers with it: q (c, whose last poll began 3 min ago)", found.What)
	require.Contains(t, found.Advice, "The server lists a worker for five minutes after its last poll: if it was stopped since, repeat the check then")
	denied := errors.New("denied")
	_, err = (&Doctor{Site: Site{Temporal: Temporal{Service: &workerList{denied: denied}}}}).workers(t.Context())
	require.ErrorIs(t, err, denied)
}
