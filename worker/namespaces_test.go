package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// otherCluster connects to a namespace that is called "default" too, as that of another cluster might be.
func otherCluster(t *testing.T) client.Client {
	t.Helper()
	name := testenv.TaskQueue(t)
	rename := func(message any, from, to string) {
		m, ok := message.(proto.Message)
		if !ok {
			return
		}
		tasks := []protoreflect.Message{m.ProtoReflect()}
		if answer, ok := message.(*workflowservice.RespondWorkflowTaskCompletedResponse); ok {
			for _, eager := range answer.GetActivityTasks() {
				tasks = append(tasks, eager.ProtoReflect())
			}
		}
		for _, m := range tasks {
			for _, key := range []protoreflect.Name{"namespace", "workflow_namespace"} {
				field := m.Descriptor().Fields().ByName(key)
				if field != nil && m.Get(field).String() == from {
					m.Set(field, protoreflect.ValueOfString(to))
				}
			}
		}
	}
	c, err := client.Dial(client.Options{HostPort: testenv.TemporalAddress(t), ConnectionOptions: client.ConnectionOptions{
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			rename(req, "default", name)
			err := invoke(ctx, method, req, reply, cc, opts...)
			rename(reply, name, "default")
			return err
		})},
	}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.DescribeWorkflowExecution(t.Context(), "nobody", "")
		var unknown *serviceerror.NamespaceNotFound
		return err != nil && !errors.As(err, &unknown)
	}, within, lookEvery, "the namespace is not known")
	return c
}

// Two clusters have a namespace of the same name, and in it a workflow of the same ID. They are two parties and two owners: the
// second waits for the first and does not take what it holds for its own; and if each waits for the other, one gets the deadlock error.
func TestNamespace_SameNameInTwoClusters_LocksDiffer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := otherCluster(t)
	t.Cleanup(func() { testenv.NoFailedTasks(t, other, "default", b.queue) })
	opposite := func(first, second lockcore.Resource) func(ctx workflow.Context) error {
		return func(ctx workflow.Context) error {
			return workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: 10}, func(ctx workflow.Context, s *workflows.Saga) error {
				if err := s.Step(workflows.Guard(ctx, first), "Note", "Undo", first.Name).Get(ctx, nil); err != nil {
					return err
				}
				if s.Attempt() == 1 {
					receive(ctx, "go on")
				}
				return s.Step(workflows.Guard(ctx, second), "Note", "Undo", second.Name).Get(ctx, nil)
			})
		}
	}
	b.workflow("there", opposite(account, account2))
	b.workflow("back", opposite(account2, account))
	b.workflow("account", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
	steps := map[string]any{"Note": b.note, "Undo": func(context.Context, string) error { return nil }, "Look": b.look}
	b.work(t, sdkworker.Options{}, steps)
	second := b.on(b.queue)
	second.client = other
	second.work(t, sdkworker.Options{}, steps)
	start := func(c client.Client, name string) client.WorkflowRun {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: b.queue, TaskQueue: b.queue}, name)
		require.NoError(t, err)
		return run
	}

	first := start(b.client, "there")
	b.untilWritten(t, 1)
	alone := start(other, "account")
	second.untilParked(t, alone)
	b.requireHolds(t, first, account)
	second.terminate(t, alone)

	back := start(other, "back")
	b.untilWritten(t, 2)
	b.signal(t, first, "go on")
	second.signal(t, back, "go on")
	for _, run := range []client.WorkflowRun{first, back} {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		require.NoError(t, run.Get(ctx, nil))
		cancel()
	}
	require.Greater(t, len(b.read()), 4, "nobody was told of the deadlock")
	b.requireFree(t, account.Name)
	b.requireFree(t, account2.Name)
}

// A worker that may not describe its namespace would not know its own locks.
func TestNamespace_DescribeNotPermitted_WorkerDoesNotStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.intercept(t, func(_ context.Context, req any) error {
		if _, ok := req.(*workflowservice.DescribeNamespaceRequest); ok {
			return status.Error(codes.PermissionDenied, "not yours")
		}
		return nil
	})
	w := sdkworker.New(b.client, b.queue, sdkworker.Options{})
	err := w.Start()
	var unknown *currentrun.NamespaceError
	require.ErrorAs(t, err, &unknown)
	require.ErrorContains(t, err, "DescribeNamespace")
}
