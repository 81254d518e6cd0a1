package worker

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/namespace"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// DefaultJanitorInterval is how often the janitor asks if nothing else is said.
const DefaultJanitorInterval = janitor.DefaultInterval

// JanitorOptions say how the janitor works, which every process with the plugin has. The zero value is the default.
//
// A janitor asks Temporal about the workflow runs that keep, wait for or were granted locks. What a closed run has left is
// released. What an open run holds is extended, whatever its HoldTTL: so a lock stands under a long timer, a human's
// decision or a paused workflow. Queues whose head may go on are granted and woken. One janitor works at a time for each
// namespace and collection; the others take its place when its process dies.
type JanitorOptions struct {
	// Off says that this process has no janitor. Another one must have it: a worker, or the command "lockstep janitor".
	// Without one, a lock of a terminated workflow stands until its HoldTTL ends, and so does one under a longer timer.
	// Defaults to false.
	Off bool
	// Interval is how often the janitor asks: 100 ms to 1 h. What a closed run has left stands no longer than that. A
	// HoldTTL of less than two intervals may end although its run is open. Not with Off. Defaults to 1 min.
	Interval time.Duration
	// QuestionsPerSecond bounds the questions to Temporal, one or two for each run: 1 to 10,000. Not with Off. Defaults to
	// 50, a tenth of what a namespace of Temporal Cloud has by default.
	QuestionsPerSecond int
}

// checked refuses what contradicts itself. The bounds are the janitor's.
func (o JanitorOptions) checked() error {
	off := func(field, value string) error {
		return &lockcore.InvalidError{Field: "worker.Options.Janitor." + field, Value: value, Bound: "unset with Off"}
	}
	switch {
	case o.Off && o.Interval != 0:
		return off("Interval", o.Interval.String())
	case o.Off && o.QuestionsPerSecond != 0:
		return off("QuestionsPerSecond", strconv.Itoa(o.QuestionsPerSecond))
	}
	return janitor.CheckPace("worker.Options.Janitor.", o.Interval, o.QuestionsPerSecond)
}

// janitors are a plugin's: while one of its workers runs, there is one for each namespace to which it knows a connection.
type janitors struct {
	options Options
	// connect is the interceptor's: it has workflows woken by a connection.
	connect func(interceptors.Connection) (disconnect func())

	mu sync.Mutex
	// clients are the options of the clients that the plugin was given to, by address and namespace.
	clients map[[2]string]clientOptions
	// workers are those that run, by their instance keys. term is nil if there are none.
	workers map[string]bool
	term    *term
}

// clientOptions are what a client was made with.
type clientOptions struct {
	client.Options
	// existing is the client whose connection it shares, if any.
	existing client.Client
}

// term is the time from the first worker's start to the last one's end.
type term struct {
	ctx    context.Context //nolint:containedctx // it ends the goroutines that were begun in the term
	end    context.CancelFunc
	ending sync.WaitGroup
	// dialed are the clients that have a connection in this term.
	dialed map[[2]string]bool
	// temporal are the connections of the janitors, by the IDs of namespaces.
	temporal map[string]*describer
}

// madeClient notes what a client was made with. Its instance cannot be had from a plugin.
func (j *janitors) madeClient(o clientOptions) {
	o.Plugins = nil
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clients[[2]string{o.HostPort, o.Namespace}] = o
}

// started begins a term with the first worker. With each worker the clients that were made since are connected.
func (j *janitors) started(worker string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.workers[worker] = true
	if j.term == nil {
		j.term = &term{dialed: map[[2]string]bool{}, temporal: map[string]*describer{}}
		j.term.ctx, j.term.end = context.WithCancel(context.Background())
	}
	t := j.term
	for key, o := range j.clients {
		if !t.dialed[key] {
			t.dialed[key] = true
			t.ending.Go(func() { j.hold(t.ctx, o) })
		}
	}
}

// stopped ends the term with the last worker, and returns when its janitors have given their offices up.
func (j *janitors) stopped(worker string) {
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
	t.ending.Wait()
}

// askAgain is after what time a namespace is asked for again.
const askAgain = 10 * time.Second

// hold holds a connection of the plugin's own until ctx ends, made as a client was.
func (j *janitors) hold(ctx context.Context, o clientOptions) {
	c, err := o.dial(ctx)
	if err != nil {
		o.Logger.Error("lockstep: the janitor has no connection to Temporal, and waits for the first activity", "error", err)
		return
	}
	defer c.Close()
	var id string
	for id == "" {
		id, err = namespace.Ask(ctx, c.WorkflowService(), o.Namespace)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			o.Logger.Warn("lockstep: the janitor does not begin yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askAgain):
		}
	}
	defer j.connect(interceptors.Connection{Client: c, Namespace: o.Namespace, NamespaceID: id, Logger: o.Logger})()
	<-ctx.Done()
}

// dial makes a client like the one that was made with the options.
func (o *clientOptions) dial(ctx context.Context) (client.Client, error) {
	if o.existing != nil {
		o.Credentials = nil // they are the connection's
		return client.NewClientFromExistingWithContext(ctx, o.existing, o.Options)
	}
	c, err := client.NewLazyClient(o.Options)
	if err != nil {
		o.Credentials = nil // a certificate stands in the options of the connection by now, and is refused a second time
		c, err = client.NewLazyClient(o.Options)
	}
	return c, err
}

// connected begins a janitor for a namespace, or gives the one that there is another connection.
func (j *janitors) connected(c interceptors.Connection) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t := j.term
	if t == nil || j.options.Janitor.Off {
		return
	}
	if d := t.temporal[c.NamespaceID]; d != nil {
		d.Store(&c.Client)
		return
	}
	d := &describer{}
	d.Store(&c.Client)
	one, err := janitor.New(janitor.Options{
		Locker: j.options.Locker.Core(), Temporal: d, Namespace: c.Namespace, NamespaceID: c.NamespaceID, Logger: c.Logger,
		Interval: j.options.Janitor.Interval, QuestionsPerSecond: j.options.Janitor.QuestionsPerSecond,
	})
	if err != nil {
		c.Logger.Error("lockstep: there is no janitor", "error", err) // all that it refuses was checked before
		return
	}
	t.temporal[c.NamespaceID] = d
	t.ending.Go(func() { one.Run(t.ctx) })
}

// describer asks by the connection that was given last.
type describer struct{ atomic.Pointer[client.Client] }

func (d *describer) DescribeWorkflowExecution(
	ctx context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, opts ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return (*d.Load()).WorkflowService().DescribeWorkflowExecution(ctx, in, opts...)
}
