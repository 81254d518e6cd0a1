package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// secret is a codec that stands for encryption: what is in a history cannot be read without it.
type secret struct{}

func (secret) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return secret{}.each(payloads, "binary/secret")
}

func (secret) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
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

func TestBesideADataConverterThatEncrypts(t *testing.T) {
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

// The SDK's tracing is beside the plugin, inside and outside of it, and each step that ran has one span.
func TestBesideTheTracingOfTheSDK(t *testing.T) {
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

func TestBesideVersionedWorkers(t *testing.T) {
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
