package main

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/connect"
)

// connectionHelp is what a command's help says of connections to Temporal.
const connectionHelp = `What no flag says of Temporal is read as the temporal command line and Temporal's SDKs read it: from the
variables TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS, TEMPORAL_TLS_CLIENT_CERT_PATH,
TEMPORAL_TLS_CLIENT_KEY_PATH, TEMPORAL_TLS_SERVER_CA_CERT_PATH, TEMPORAL_TLS_SERVER_NAME and others, and
from their configuration file (TEMPORAL_CONFIG_FILE, TEMPORAL_PROFILE). docs/activities.md has examples.`

// temporalFlags say which Temporal a command talks to. What a flag does not say the environment does, or the
// configuration file.
type temporalFlags struct {
	said      connect.TemporalFlags
	tls       bool
	set       flagSet
	taskQueue string
	namespace string // that of the connection, once there is one
}

// flagSet is what flags are added to.
type flagSet interface {
	StringVar(p *string, name, value, usage string)
	BoolVar(p *bool, name string, value bool, usage string)
	Changed(name string) bool
}

func (t *temporalFlags) add(f flagSet) {
	t.set = f
	// No default is shown: it is what environment and file say.
	f.StringVar(&t.said.Address, "temporal-address", "", "Temporal's frontend (TEMPORAL_ADDRESS, or else "+client.DefaultHostPort+")")
	f.StringVar(&t.said.Namespace, "namespace", "", "the namespace (TEMPORAL_NAMESPACE, or else "+client.DefaultNamespace+")")
	f.BoolVar(&t.tls, "tls", false, "connect with TLS, as TEMPORAL_TLS=true, a certificate, or a key in TEMPORAL_API_KEY do too")
	f.StringVar(&t.taskQueue, "task-queue", "lockstep", "the task queue")
}

// dial connects; logs of the SDK go to s.err.
func (t *temporalFlags) dial(ctx context.Context, s streams, with ...interceptor.ClientInterceptor) (client.Client, error) {
	if t.set.Changed("tls") {
		t.said.TLS = &t.tls
	}
	f, err := connect.FindFrontend(t.said)
	if err != nil {
		return nil, err
	}
	f.Options.Interceptors, f.Options.Logger = with, sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(s.err, nil)))
	t.namespace = f.Options.Namespace
	return f.Dial(ctx)
}
