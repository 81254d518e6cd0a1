package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"

	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// seal is a codec that marks payloads with what they belong to, and reads no others.
type seal struct{ of string }

func (s seal) WithSerializationContext(of converter.SerializationContext) converter.PayloadCodec {
	switch of := of.(type) {
	case converter.ActivitySerializationContext:
		return seal{fmt.Sprintf("activity %s of %s", of.ActivityType, of.WorkflowID)}
	case converter.WorkflowSerializationContext:
		return seal{"workflow " + of.WorkflowID}
	}
	return s
}

func (s seal) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	sealed := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		sealed[i] = &commonpb.Payload{Metadata: maps.Clone(p.GetMetadata()), Data: p.GetData()}
		sealed[i].Metadata["seal"] = []byte(s.of)
	}
	return sealed, nil
}

func (s seal) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	plain := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if of := string(p.GetMetadata()["seal"]); of != s.of {
			return nil, fmt.Errorf("this belongs to %q, and is read as what belongs to %q", of, s.of)
		}
		plain[i] = &commonpb.Payload{Metadata: maps.Clone(p.GetMetadata()), Data: p.GetData()}
		delete(plain[i].Metadata, "seal")
	}
	return plain, nil
}

// A data converter that looks at what a payload belongs to reads the result of a guarded step, whether it waited or not.
func TestGuard_ConverterWithContext_ReadsTheResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, err := client.Dial(client.Options{
		HostPort: testenv.TemporalAddress(t), DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), seal{}),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b.client = c
	greet := func(ctx workflow.Context, want string) error {
		var got string
		if err := workflow.ExecuteActivity(ctx, "Greet").Get(ctx, &got); err != nil || got != want {
			return errors.Join(fmt.Errorf("got %q", got), err)
		}
		return do(ctx, "Nothing")
	}
	b.workflow("W", func(ctx workflow.Context) error {
		return errors.Join(greet(ctx, "hello"), greet(workflows.Guard(ctx, account2), "hello"), greet(workflows.Guard(ctx, account), "hello"))
	})
	b.work(t, sdkworker.Options{}, map[string]any{"Greet": func(context.Context) (string, error) { return "hello", nil }, "Nothing": nothing})
	run, other := b.parked(t, "W")
	require.NoError(t, other.Leave(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	require.NoError(t, run.Get(ctx, nil))
}

// Another team's worker runs the step, with a converter of its own, and waits for its locks.
func TestWait_StepHasOwnConverter_WorkerReadsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{})
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithDataConverter(workflow.WithTaskQueue(ctx, b.queue+"-elsewhere"), own)
		return do(workflows.Guard(ctx, account), "Do")
	})
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	elsewhere := b.on(b.queue + "-elsewhere")
	elsewhere.reach(t, client.Options{DataConverter: own})
	elsewhere.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{"Do": nothing})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilActivity(t, run, isBusy, "the wait does not find that the lock is busy")
	require.NoError(t, other.Leave(t.Context()))
	b.succeed(t, run)
}

// A worker with another codec frees a lock. The workflow reads the wake-up, so that its Lock costs no second activity.
func TestLock_WokenByWorkerWithCodec_CostsOneActivity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", func(ctx workflow.Context) error {
		hold, err := workflows.Lock(ctx, locks(account))
		if err != nil {
			return err
		}
		return hold.Release(ctx)
	})
	waits := b.serve(t)
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilActivity(t, run, isBusy, "it does not wait")
	waits.Stop() // only the process with the codec wakes it
	with := b.on(b.queue + "-codec")
	with.reach(t, client.Options{DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{})})
	locker, err := lockcore.New(testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	closeAtEnd(t, locker.Steps())
	with.locker, with.plugin = locker.Steps(), newPlugin(t, worker.Options{Locker: locker})
	with.workflow("Other", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account2), "Nothing") })
	with.serve(t)
	other2, err := with.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: with.queue}, "Other")
	require.NoError(t, err)
	require.NoError(t, other2.Get(t.Context(), nil)) // its worker is connected to the namespace
	got, err := locker.Acquire(t.Context(), lockcore.Request{LockID: "watches", Resources: []lockcore.Resource{account2}})
	require.NoError(t, err)
	require.NoError(t, got.Leave(t.Context()))
	locker.Steps().WatchFor(account.Name)
	require.NoError(t, other.Leave(t.Context()))
	b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 1)
	b.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker})
	b.serve(t)
	events, err := b.end(t, run)
	require.NoError(t, err)
	require.Equal(t, 1, scheduled(events, "lockstep.Acquire"))
}

// A worker without the victim's codec wakes it. The victim still receives the deadlock error.
func TestDeadlock_VictimHasCodec_IsWoken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain := b.on(b.queue + "-plain")
	plain.workflow("Plain", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, lockcore.Exclusive("plain")), "Do") })
	plain.work(t, sdkworker.Options{}, map[string]any{"Do": nothing})
	plain.succeed(t, plain.start(t, "Plain"))

	victim := b.on(b.queue)
	victim.reach(t, client.Options{
		DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{}),
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if _, wakes := req.(*workflowservice.RespondActivityTaskCompletedByIdRequest); wakes {
				return errors.New("it wakes no workflow itself")
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		})}},
	})
	work := func(o sdkworker.Options) (sdkworker.Worker, *lockcore.Steps) {
		locker, err := lockcore.New(testenv.Mongo(t).Client().Database(b.database).Collection(lockCollection), lockcore.Config{})
		require.NoError(t, err)
		plugin, err := worker.NewPlugin(worker.Options{Locker: locker, TaskQueue: victim.queue})
		require.NoError(t, err)
		o.Plugins = []sdkworker.Plugin{plugin}
		return victim.work(t, o, map[string]any{"Do": nothing}), locker.Steps()
	}
	victim.workflow("W", toldOfADeadlock)
	work(sdkworker.Options{LocalActivityWorkerOnly: true})
	steps, locker := work(sdkworker.Options{DisableWorkflowWorker: true})

	older := lockcore.StepRequest{Caller: lockcore.Caller{LockID: "somebody"}, Started: time.Now().Add(-time.Hour), Resources: []lockcore.Resource{account2}}
	holds, err := b.locker.TryAcquire(t.Context(), older)
	require.NoError(t, err)
	run := victim.start(t, "W")
	victim.untilParked(t, run)
	steps.Stop() // from here on only the other worker looks
	require.NoError(t, locker.Close(t.Context()))
	older.Resources = []lockcore.Resource{account}
	acquired := make(chan error, 1)
	go func() {
		got, err := b.locker.Acquire(t.Context(), older)
		if err == nil {
			err = got.Leave(t.Context())
		}
		acquired <- err
	}()
	b.untilEvents(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, 2) // the first step, and the wait
	work(sdkworker.Options{DisableWorkflowWorker: true})
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	require.NoError(t, run.Get(ctx, nil))
	require.NoError(t, errors.Join(<-acquired, holds.Leave(t.Context())))
}

// toldOfADeadlock is a saga that expects to be the victim of one.
func toldOfADeadlock(ctx workflow.Context) error {
	err := workflows.RunSaga(ctx, workflows.SagaOptions{DeadlockRetries: -1}, func(ctx workflow.Context, s *workflows.Saga) error {
		if err := s.Step(workflows.Guard(ctx, account), "Do", "Do").Get(ctx, nil); err != nil {
			return err
		}
		return s.Step(workflows.Guard(ctx, account2), "Do", "Do").Get(ctx, nil)
	})
	if deadlock := new(lockcore.DeadlockError); !errors.As(err, &deadlock) || deadlock.Cycle == "" {
		return errors.Join(err, errors.New("it was not told"))
	}
	return nil
}

// secret is a codec in the role of encryption: payloads in a history cannot be read without it.
type secret struct{}

func (secret) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return secret{}.each(payloads, "binary/secret")
}

// Decode leaves what is not encoded as it is, as the codecs of Temporal's samples do.
func (secret) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	if len(payloads) > 0 && string(payloads[0].GetMetadata()[converter.MetadataEncoding]) == converter.MetadataEncodingJSON {
		return payloads, nil
	}
	return secret{}.each(payloads, "json/plain")
}

func (secret) each(payloads []*commonpb.Payload, encoding string) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		data := bytes.Clone(p.GetData())
		for j := range data {
			data[j] ^= 0x5a
		}
		out[i] = &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding)}, Data: data}
	}
	return out, nil
}

// waitAndRelease lets two workflows wait one behind the other, and returns when both have ended.
func (b *bundle) waitAndRelease(t *testing.T) {
	t.Helper()
	other := b.taken(t, account)
	first := b.start(t, "W")
	b.untilParked(t, first)
	second := b.start(t, "W")
	b.untilParked(t, second)
	require.NoError(t, other.Leave(t.Context()))
	for _, run := range []client.WorkflowRun{first, second} {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		require.NoError(t, run.Get(ctx, nil))
	}
	require.Equal(t, []string{"free: false for secret words", "free: false for secret words"}, b.read())
	b.requireFree(t, account.Name)
}

func (b *bundle) lookFor(ctx context.Context, words string) error {
	free, err := b.isFree(ctx, account.Name)
	b.write("free: %v for %s", free, words)
	return err
}

func secretStep(ctx workflow.Context) error {
	return workflow.ExecuteActivity(workflows.Guard(ctx, account), "Look", "secret words").Get(ctx, nil)
}

func TestPlugin_EncryptingDataConverter_StepsAndWaitsWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c, err := client.Dial(client.Options{
		HostPort: testenv.TemporalAddress(t), DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{}),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	b.client = c
	b.workflow("W", secretStep)
	b.work(t, sdkworker.Options{}, map[string]any{"Look": b.lookFor})
	b.waitAndRelease(t)
}

// With the SDK's tracing interceptor installed before or after the plugin, each step that ran has one span.
func TestPlugin_TracingInterceptor_SpansNest(t *testing.T) {
	t.Parallel()
	for _, outside := range []bool{false, true} {
		t.Run(fmt.Sprintf("outside %v", outside), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			spans := tracetest.NewInMemoryExporter()
			provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
			tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: provider.Tracer("test")})
			require.NoError(t, err)
			o := client.Options{HostPort: testenv.TemporalAddress(t)}
			if outside { // interceptors of the client come before those of the worker
				o.Interceptors = []interceptor.ClientInterceptor{tracing}
			}
			c, err := client.Dial(o)
			require.NoError(t, err)
			t.Cleanup(c.Close)
			b.client = c
			b.workflow("W", secretStep)
			workerOptions := sdkworker.Options{}
			if !outside {
				workerOptions.Interceptors = []interceptor.WorkerInterceptor{tracing}
			}
			b.work(t, workerOptions, map[string]any{"Look": b.lookFor})
			b.waitAndRelease(t)
			ran := 0
			for _, s := range spans.GetSpans() {
				if s.Name == "RunActivity:Look" {
					ran++
				}
			}
			require.GreaterOrEqual(t, ran, 2)
		})
	}
}

func TestPlugin_VersionedWorkers_LocksWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.workflow("W", secretStep)
	version := sdkworker.WorkerDeploymentVersion{DeploymentName: b.queue, BuildID: "1"}
	b.work(t, sdkworker.Options{DeploymentOptions: sdkworker.DeploymentOptions{
		UseVersioning: true, Version: version, DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
	}}, map[string]any{"Look": b.lookFor})
	deployment := b.client.WorkerDeploymentClient().GetHandle(b.queue)
	require.Eventually(t, func() bool {
		_, err := deployment.SetCurrentVersion(t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: "1"})
		return err == nil
	}, within, 100*time.Millisecond, "the version cannot be made the current one")
	b.waitAndRelease(t)
}
