package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/startup"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// connectionHelp is the part of a command's help about connections to Temporal.
const connectionHelp = `Settings of the connection to Temporal that no flag sets are read as the temporal command line and Temporal's
SDKs read them: from the variables TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS,
TEMPORAL_TLS_CLIENT_CERT_PATH, TEMPORAL_TLS_CLIENT_KEY_PATH, TEMPORAL_TLS_SERVER_CA_CERT_PATH,
TEMPORAL_TLS_SERVER_NAME and others, and from their configuration file (TEMPORAL_CONFIG_FILE,
TEMPORAL_PROFILE). docs/activities.md has examples.`

// temporalFlags select a Temporal server. The environment and the configuration file have the settings without a flag.
type temporalFlags struct {
	given   connect.TemporalFlags
	tls     bool
	command *cobra.Command
	// usesCodec is set by commands that read payloads. codec is the endpoint of the codec server, after dial; empty if there is none.
	usesCodec            bool
	codecEndpoint, codec string
	// namespace is the namespace of the connection, after dial.
	namespace string
}

func (t *temporalFlags) add(c *cobra.Command) {
	t.command = c
	f := c.Flags()
	// No default is shown, because the environment and the file have it.
	f.StringVar(&t.given.Address, "temporal-address", "", "Temporal's frontend (TEMPORAL_ADDRESS, or else "+client.DefaultHostPort+")")
	f.StringVar(&t.given.Namespace, "namespace", "", "the namespace (TEMPORAL_NAMESPACE, or else "+client.DefaultNamespace+")")
	f.BoolVar(&t.tls, "tls", false, "connect with TLS, as TEMPORAL_TLS=true, a certificate, or a key in TEMPORAL_API_KEY do too")
}

// dial connects to Temporal, with changed options if change is not nil. The SDK logs to s.err.
func (t *temporalFlags) dial(ctx context.Context, s streams, change func(*client.Options)) (client.Client, error) {
	if t.command.Flags().Changed("tls") {
		t.given.TLS = &t.tls
	}
	f, err := connect.FindFrontend(t.given)
	if err != nil {
		return nil, err
	}
	f.Options.Logger = logger(s)
	if t.usesCodec {
		if t.codec, err = f.UseCodec(t.codecEndpoint); err != nil {
			return nil, err
		}
	}
	if change != nil {
		change(&f.Options)
	}
	t.namespace = f.Options.Namespace
	return f.Dial(ctx)
}

func logger(s streams) sdklog.Logger {
	return sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(s.err, nil)))
}

const (
	defaultDatabase   = "lockstep"
	defaultCollection = "locks"
	uriVariable       = "LOCKSTEP_MONGODB_URI"
)

// databaseFlags select the collection of the locks.
type databaseFlags struct {
	uri, database, collection string
	// awaits, unless it is nil, makes the command wait for a database that does not answer, and gets a line about that.
	awaits sdklog.Logger
	// traces gets the spans of the command. Defaults to none.
	traces trace.TracerProvider
}

func (d *databaseFlags) add(c *cobra.Command) {
	f := c.Flags()
	// No default is shown, because the environment's may contain a password.
	f.StringVar(&d.uri, "mongodb-uri", "", "where the locks' database is (LOCKSTEP_MONGODB_URI)")
	f.StringVar(&d.database, "database", "", `the database; that of the URI by default, or "`+defaultDatabase+`"`)
	f.StringVar(&d.collection, "collection", defaultCollection, "the collection of the locks")
}

// address returns the URI of the database, or the empty string.
func (d *databaseFlags) address() string { return cmp.Or(d.uri, os.Getenv(uriVariable)) }

// connect connects to the database, as a command with this name.
func (d *databaseFlags) connect(ctx context.Context, command string) (coll *mongo.Collection, disconnect func(), err error) {
	uri := d.address()
	if uri == "" {
		return nil, nil, fmt.Errorf("%w: neither --mongodb-uri nor LOCKSTEP_MONGODB_URI says where the database is", errUsage)
	}
	var mc *mongo.Client
	dial := func(ctx context.Context) (err error) {
		mc, err = connect.Mongo(ctx, uri, command)
		return err
	}
	if d.awaits != nil {
		err = startup.Await(ctx, d.awaits, dial)
	} else {
		err = dial(ctx)
	}
	if err != nil && err == context.Cause(ctx) { //nolint:errorlint // Await returns it as it is
		return nil, nil, err
	}
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

// siteFlags select the database and the Temporal server of a command that inspects, repairs or releases locks.
type siteFlags struct {
	temporalFlags
	databaseFlags
	noTemporal bool
}

func (f *siteFlags) add(c *cobra.Command) {
	f.temporalFlags.add(c)
	f.databaseFlags.add(c)
}

// site is an open connection to a site's servers.
type site struct {
	inspect.Site
	client client.Client // nil without Temporal
	// noDatabase and noTemporal are set by openReachable.
	noDatabase, noTemporal error
	close                  func()
}

// open connects to the database and, unless noTemporal is set, to Temporal.
func (f *siteFlags) open(ctx context.Context, s streams, command string) (*site, error) {
	opened, err := f.databaseFlags.open(ctx, command)
	if err != nil || f.noTemporal {
		return opened, err
	}
	if err := f.openTemporal(ctx, s, opened); err != nil {
		opened.close()
		return nil, err
	}
	return opened, nil
}

// openReachable is open for a command that works even if a server cannot be used: the site has the reason.
func (f *siteFlags) openReachable(ctx context.Context, s streams, command string) (*site, error) {
	opened, err := f.databaseFlags.open(ctx, command)
	switch {
	case errors.Is(err, errUsage):
		return nil, err
	case err != nil:
		opened = &site{noDatabase: err, close: func() {}}
	}
	opened.noTemporal = f.openTemporal(ctx, s, opened)
	return opened, nil
}

func (f *siteFlags) openTemporal(ctx context.Context, s streams, to *site) (err error) {
	if to.client, err = f.dial(ctx, s, nil); err != nil {
		return err
	}
	service := to.client.WorkflowService()
	id, err := currentrun.NamespaceID(ctx, service, f.namespace)
	if err != nil {
		to.client.Close()
		return err
	}
	to.Temporal = inspect.Temporal{Service: service, Namespace: f.namespace, NamespaceID: id}
	disconnect := to.close
	to.close = func() {
		to.client.Close()
		disconnect()
	}
	return nil
}

// openPolicies opens the site like open, and reads its policies. The site is closed after an error.
func (d *databaseFlags) openPolicies(ctx context.Context, command string) (at *site, policies inspect.Policies, err error) {
	if at, err = d.open(ctx, command); err != nil {
		return nil, policies, err
	}
	if err = at.CheckCollection(ctx); err == nil {
		policies, err = at.Policies(ctx)
	}
	if err != nil {
		at.close()
		return nil, policies, err
	}
	return at, policies, nil
}

// open connects to the database only.
func (d *databaseFlags) open(ctx context.Context, command string) (*site, error) {
	coll, disconnect, err := d.connect(ctx, command)
	if err != nil {
		return nil, err
	}
	locker, err := lockcore.New(coll, lockcore.Config{TracerProvider: d.traces})
	if err != nil {
		disconnect()
		return nil, err
	}
	opened := &site{Site: inspect.Site{Locker: locker.Steps(), Collection: coll, MaxPoolSize: connect.MaxPoolSize(d.address())}}
	if d.database != "" {
		opened.Flags = append(opened.Flags, "--database", d.database)
	}
	if d.collection != defaultCollection {
		opened.Flags = append(opened.Flags, "--collection", d.collection)
	}
	opened.close = func() {
		_ = locker.Close(context.WithoutCancel(ctx)) // what it could not end ends with its TTL
		disconnect()
	}
	return opened, nil
}
