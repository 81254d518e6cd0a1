package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/connect"
)

// temporalFlags say which Temporal a command talks to. What a flag does not say the environment does.
type temporalFlags struct {
	address, namespace, taskQueue string
	tls                           bool
}

// flagSet is what flags are added to.
type flagSet interface {
	StringVar(p *string, name, value, usage string)
	BoolVar(p *bool, name string, value bool, usage string)
}

func (t *temporalFlags) add(f flagSet) {
	f.StringVar(&t.address, "temporal-address", fromEnv("TEMPORAL_ADDRESS", client.DefaultHostPort), "Temporal's frontend (TEMPORAL_ADDRESS)")
	f.StringVar(&t.namespace, "namespace", fromEnv("TEMPORAL_NAMESPACE", client.DefaultNamespace), "the namespace (TEMPORAL_NAMESPACE)")
	f.BoolVar(&t.tls, "tls", false, "connect with TLS, as a key in TEMPORAL_API_KEY does too")
	f.StringVar(&t.taskQueue, "task-queue", "lockstep", "the task queue")
}

// dial connects; logs of the SDK go to s.err.
func (t *temporalFlags) dial(ctx context.Context, s streams, with ...interceptor.ClientInterceptor) (client.Client, error) {
	o := client.Options{HostPort: t.address, Namespace: t.namespace, Interceptors: with, Logger: sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(s.err, nil)))}
	key := os.Getenv("TEMPORAL_API_KEY")
	if key != "" {
		o.Credentials = client.NewAPIKeyStaticCredentials(key)
	}
	if t.tls || key != "" {
		o.ConnectionOptions.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c, err := connect.Temporal(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("--temporal-address: %w", err)
	}
	return c, nil
}

// fromEnv is what the environment says, or else a default.
func fromEnv(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
