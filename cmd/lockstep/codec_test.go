package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// hexCodec makes payloads unreadable for a process that lacks it.
type hexCodec struct{}

const hexEncoding = "binary/hex"

func (hexCodec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	encoded := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		data, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		encoded[i] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(hexEncoding)}, Data: []byte(hex.EncodeToString(data)),
		}
	}
	return encoded, nil
}

func (hexCodec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	decoded := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if decoded[i] = p; string(p.GetMetadata()[converter.MetadataEncoding]) != hexEncoding {
			continue // the codecs of Temporal's samples leave it as it is, too
		}
		decoded[i] = &commonpb.Payload{}
		data, err := hex.DecodeString(string(p.GetData()))
		if err != nil {
			return nil, err
		}
		if err := proto.Unmarshal(data, decoded[i]); err != nil {
			return nil, err
		}
	}
	return decoded, nil
}

// encoded makes the workflows of a test encode their payloads.
func (s *served) encoded(t *testing.T) {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{
		HostPort: testenv.TemporalAddress(t), DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), hexCodec{}),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	s.client = c
}

// A workflow whose payloads are encoded locks by name. Inputs and results are encoded in its history, failures are not.
func TestWorker_CodecEndpoint_ReadsAndWritesEncodedPayloads(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	codec := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" || r.Header.Get("X-Namespace") != client.DefaultNamespace {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		asked.Add(1)
		http.StripPrefix("/"+client.DefaultNamespace, converter.NewPayloadCodecHTTPHandler(hexCodec{})).ServeHTTP(w, r)
	}))
	t.Cleanup(codec.Close)
	s := serveWith(t, append(servers(t), "TEMPORAL_CODEC_AUTH=Bearer token"), "--janitor", "0", "--codec-endpoint", codec.URL+"/{namespace}")
	require.Contains(t, s.stderr.String(), "codec server "+codec.URL+"/default")
	s.encoded(t)
	resources := []any{map[string]any{"name": "account/1"}}
	run := s.foreign(t, func(_ workflow.Context, locks workflow.Context) error {
		got, err := call(locks, "lockstep.Acquire", map[string]any{"lockId": "other", "resources": resources, "holdOnly": true})
		if err != nil || len(got["leases"].([]any)) != 1 {
			return fmt.Errorf("acquire: %v, %w", got, err)
		}
		once := workflow.WithRetryPolicy(locks, temporal.RetryPolicy{MaximumAttempts: 1})
		_, err = call(once, "lockstep.Acquire", map[string]any{"resources": resources, "schedule": 1, "try": true})
		if err := failsAs(err, "lockstep.Busy", "resource", "account/1"); err != nil {
			return err
		}
		_, err = call(locks, "lockstep.Release", map[string]any{"lockId": "other", "resources": []string{"account/1"}, "schedule": 1})
		return err
	})
	require.NoError(t, get(t, run))
	require.NotZero(t, asked.Load())
	events := s.client.GetWorkflowHistory(context.WithoutCancel(t.Context()), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(t, err)
		if e.GetActivityTaskFailedEventAttributes() == nil {
			require.NotContains(t, e.String(), "account/1")
		}
	}
	s.stop(t)
}

// Without a codec server the worker reports that, and an activity with encoded input fails retryably.
func TestWorker_NoCodecEndpoint_SaysWhatItCannotRead(t *testing.T) {
	t.Parallel()
	s := serve(t, "--janitor", "0")
	require.Contains(t, s.stderr.String(), "no codec server is set, so payloads that a codec encodes cannot be read; --codec-endpoint names one")
	s.encoded(t)
	run := s.foreign(t, acquireAccount)
	require.Eventually(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		return err == nil && len(d.GetPendingActivities()) == 1 && d.GetPendingActivities()[0].GetAttempt() > 1
	}, within, 20*time.Millisecond, "the activity is not retried")
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "for the test"))
}

func TestWorker_WrongCodecEndpoint_IsRefused(t *testing.T) {
	t.Parallel()
	code, _, stderr := lockstep(t, servers(t), "worker", "--database", "none", "--codec-endpoint", "127.0.0.1:8081")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `--codec-endpoint is`)
}
