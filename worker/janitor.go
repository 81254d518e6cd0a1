package worker

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// DefaultJanitorInterval is the default of JanitorOptions.Interval.
const DefaultJanitorInterval = janitor.DefaultInterval

// JanitorOptions configures the janitor, which every process with the plugin has. The zero value is the default.
//
// A janitor asks Temporal about the workflow runs that hold locks, wait for them, or were granted them. It releases the locks of closed runs, and
// extends those of open runs, so that they last across a long timer, a human decision, or a pause of the workflow. If no other process does, it
// grants a free resource to the first waiter. One janitor works at a time for each namespace and collection; another one takes over when its
// process dies.
type JanitorOptions struct {
	// Off turns the janitor of this process off. Another process must have one: a worker, or the command "lockstep janitor". Without a
	// janitor, a lock of a terminated workflow remains until its HoldTTL ends, and a lock is lost during a timer longer than its HoldTTL.
	// Defaults to false.
	Off bool
	// Interval is the time between two rounds: 100 ms to 1 h. It bounds the time for which the locks of a closed run remain. If
	// HoldTTL is below two intervals, locks of an open run may expire. Must not be combined with Off. Defaults to 1 min.
	Interval time.Duration
	// RequestsPerSecond bounds the requests to Temporal, one or two for each run: 1 to 10,000. Must not be combined with Off. Defaults to
	// 50, a tenth of the default limit of a namespace in Temporal Cloud.
	RequestsPerSecond int
}

// check refuses options that contradict each other, or are out of bounds.
func (o JanitorOptions) check() error {
	var field, value string
	switch {
	case o.Off && o.Interval != 0:
		field, value = "Interval", o.Interval.String()
	case o.Off && o.RequestsPerSecond != 0:
		field, value = "RequestsPerSecond", strconv.Itoa(o.RequestsPerSecond)
	default:
		return janitor.CheckPace("worker.Options.Janitor.", o.Interval, o.RequestsPerSecond)
	}
	return &lockcore.InvalidError{Field: "worker.Options.Janitor." + field, Value: value, Bound: "unset with Off"}
}

// janitors are those of a plugin. While one of its workers runs, there is one for each namespace to which the plugin has a connection.
type janitors struct {
	options Options
	// interceptor wakes workflows by the connections of the janitors.
	interceptor *interceptors.Interceptor

	mu sync.Mutex
	// clients has the options of the clients that the plugin was given to, by address and namespace.
	clients map[[2]string]client.PluginNewClientOptions
	// logger is that of the latest client.
	logger log.Logger
	// workers has the instance keys of the running workers. term is nil if there are none.
	workers map[string]bool
	term    *term
}

// term is the time from the start of the first worker to the end of the last one.
type term struct {
	ctx     context.Context //nolint:containedctx // ends the goroutines of the term
	end     context.CancelFunc
	running sync.WaitGroup
	// connected has the clients that have a connection in this term.
	connected map[[2]string]bool
	// janitors are by the IDs of namespaces.
	janitors map[string]*janitor.Janitor
}

func newJanitors(o Options) *janitors {
	return &janitors{
		options: o, clients: map[[2]string]client.PluginNewClientOptions{}, logger: log.NewStructuredLogger(slog.Default()), workers: map[string]bool{},
	}
}

// addClient records the options of a client. A plugin does not get the client itself.
func (j *janitors) addClient(o client.PluginNewClientOptions) {
	o.ClientOptions.Plugins = nil
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clients[[2]string{o.ClientOptions.HostPort, o.ClientOptions.Namespace}] = o
	j.logger = o.ClientOptions.Logger
}

func (j *janitors) haveClients() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.clients) > 0
}

func (j *janitors) log() log.Logger {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.logger
}

// addWorker begins a term with the first worker. With each worker, it connects the clients that were made since the previous one.
func (j *janitors) addWorker(worker string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.workers[worker] = true
	if j.term == nil {
		j.term = &term{connected: map[[2]string]bool{}, janitors: map[string]*janitor.Janitor{}}
		j.term.ctx, j.term.end = context.WithCancel(context.Background())
	}
	t := j.term
	for key, o := range j.clients {
		if !t.connected[key] {
			t.connected[key] = true
			t.running.Go(func() { j.connect(t.ctx, o) })
		}
	}
}

// removeWorker ends the term with the last worker, and returns when its janitors have stopped.
func (j *janitors) removeWorker(worker string) {
	j.mu.Lock()
	delete(j.workers, worker)
	t := j.term
	if t == nil || len(j.workers) > 0 {
		j.mu.Unlock()
		return
	}
	j.term = nil
	j.mu.Unlock()
	t.end()
	t.running.Wait()
}

// namespaceRetry is the delay before a failed question for the ID of a namespace is repeated.
const namespaceRetry = 10 * time.Second

// connect holds a connection of the plugin's own, made like a client, until ctx ends.
func (j *janitors) connect(ctx context.Context, o client.PluginNewClientOptions) {
	c, err := dial(ctx, o.ClientOptions, o.FromExisting)
	connection := interceptors.Connection{Client: c, Namespace: o.ClientOptions.Namespace, Logger: o.ClientOptions.Logger}
	if err != nil {
		connection.Logger.Error("lockstep: the janitor has no connection to Temporal, and waits for the first activity", "error", err)
		return
	}
	defer c.Close()
	if connection.NamespaceID = namespaceID(ctx, connection); connection.NamespaceID == "" {
		return
	}
	j.interceptor.Connect(connection)
	defer j.interceptor.Disconnect(connection)
	<-ctx.Done()
}

// dial makes a client with the options of another one. existing is the client whose connection that one shares, if any.
func dial(ctx context.Context, o client.Options, existing client.Client) (client.Client, error) {
	if existing != nil {
		o.Credentials = nil // the connection has them
		return client.NewClientFromExistingWithContext(ctx, existing, o)
	}
	c, err := client.NewLazyClient(o)
	if err != nil {
		o.Credentials = nil // the first client has put its certificate into the options of the connection, and the SDK refuses it twice
		c, err = client.NewLazyClient(o)
	}
	return c, err
}

// namespaceID asks for the ID of a connection's namespace until the server answers. It returns "" if ctx ends first.
func namespaceID(ctx context.Context, c interceptors.Connection) string {
	for {
		id, err := currentrun.NamespaceID(ctx, c.Client.WorkflowService(), c.Namespace)
		if err == nil {
			return id
		}
		if ctx.Err() == nil {
			c.Logger.Warn("lockstep: the janitor does not begin yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(namespaceRetry):
		}
	}
}

// connected starts a janitor for a namespace, or gives the running one another connection.
func (j *janitors) connected(c interceptors.Connection) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.term
	if t == nil || j.options.Janitor.Off {
		return
	}
	service := c.Client.WorkflowService()
	if running := t.janitors[c.NamespaceID]; running != nil {
		running.UseTemporal(service)
		return
	}
	one := janitor.New(janitor.Options{
		Locker: j.options.Locker.Steps(), Temporal: service, Namespace: c.Namespace, NamespaceID: c.NamespaceID, Logger: c.Logger,
		Interval: j.options.Janitor.Interval, RequestsPerSecond: j.options.Janitor.RequestsPerSecond,
	})
	t.janitors[c.NamespaceID] = one
	t.running.Go(func() { one.Run(t.ctx) })
}
