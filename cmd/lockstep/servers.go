package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
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
	// namespace is that of the connection, once there is one.
	namespace string
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
}

// dial connects, with options that change has changed. Logs of the SDK go to s.err.
func (t *temporalFlags) dial(ctx context.Context, s streams, change func(*client.Options)) (client.Client, error) {
	if t.set.Changed("tls") {
		t.said.TLS = &t.tls
	}
	f, err := connect.FindFrontend(t.said)
	if err != nil {
		return nil, err
	}
	f.Options.Logger = logger(s)
	change(&f.Options)
	t.namespace = f.Options.Namespace
	return f.Dial(ctx)
}

// logger writes to s.err.
func logger(s streams) sdklog.Logger {
	return sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(s.err, nil)))
}

// defaultDatabase and defaultCollection are where the locks are if nothing else is said.
const (
	defaultDatabase   = "lockstep"
	defaultCollection = "locks"
)

// uriVariable says where the database is.
const uriVariable = "LOCKSTEP_MONGODB_URI"

// databaseFlags say where the locks are.
type databaseFlags struct{ uri, database, collection string }

func (d *databaseFlags) add(f flagSet) {
	// No default is shown: the environment's may hold a password.
	f.StringVar(&d.uri, "mongodb-uri", "", "where the locks' database is (LOCKSTEP_MONGODB_URI)")
	f.StringVar(&d.database, "database", "", `the database; that of the URI by default, or "`+defaultDatabase+`"`)
	f.StringVar(&d.collection, "collection", defaultCollection, "the collection of the locks")
}

// connect connects to the database, as a command with this name.
func (d *databaseFlags) connect(ctx context.Context, command string) (coll *mongo.Collection, disconnect func(), err error) {
	uri := cmp.Or(d.uri, os.Getenv(uriVariable))
	if uri == "" {
		return nil, nil, fmt.Errorf("%w: neither --mongodb-uri nor LOCKSTEP_MONGODB_URI says where the database is", errUsage)
	}
	mc, err := connect.Mongo(ctx, uri, command)
	if err != nil {
		from := uriVariable
		if d.uri != "" {
			from = "--mongodb-uri"
		}
		return nil, nil, fmt.Errorf("%s: %w", from, err)
	}
	coll = mc.Database(cmp.Or(d.database, connect.Database(uri), defaultDatabase)).Collection(d.collection)
	return coll, func() { _ = mc.Disconnect(context.WithoutCancel(ctx)) }, nil // the process ends anyway
}
