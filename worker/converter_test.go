package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
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
func TestTheResultOfAGuardedStepIsReadByAConverterThatKnowsItsContext(t *testing.T) {
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
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilParked(t, run)
	require.NoError(t, other.Leave(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	require.NoError(t, run.Get(ctx, nil))
}

// Another team's worker runs the step, with a converter of its own, and waits for its locks.
func TestWait_StepHasAConverterOfItsOwn_IsReadByItsWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), secret{})
	b.workflow("W", func(ctx workflow.Context) error {
		ctx = workflow.WithDataConverter(workflow.WithTaskQueue(ctx, b.queue+"-elsewhere"), own)
		return do(workflows.Guard(ctx, account), "Do")
	})
	b.work(t, sdkworker.Options{LocalActivityWorkerOnly: true}, nil)
	c, err := client.Dial(client.Options{HostPort: testenv.TemporalAddress(t), DataConverter: own})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	elsewhere := &bundle{client: c, plugin: b.plugin, locker: b.locker, queue: b.queue + "-elsewhere", workflows: map[string]any{}}
	elsewhere.work(t, sdkworker.Options{DisableWorkflowWorker: true}, map[string]any{"Do": nothing})
	other := b.taken(t, account)
	run := b.start(t, "W")
	b.untilActivity(t, run, isBusy, "the wait does not find that the lock is busy")
	require.NoError(t, other.Leave(t.Context()))
	_, err = b.end(t, run)
	require.NoError(t, err)
}
