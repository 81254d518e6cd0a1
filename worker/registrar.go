package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

const (
	// registerEvery is the time between two registrations of a worker. The doctor counts a registration
	// for several times as long.
	registerEvery = time.Minute
	// registerWait is how long a worker that starts waits for its first registration.
	registerWait = 2 * time.Second
)

// registrar registers the running workers of a plugin in the locks' collection. "lockstep doctor"
// compares them with the pollers of their task queues, to find workers without Lockstep: those run
// guarded steps without locks, and nothing fails.
type registrar struct {
	locker *lockcore.Locker

	mu sync.Mutex
	// clients are the namespaces of the clients that the plugin was given to, with the identities that
	// their workers have by default. logger is that of the last one.
	clients map[party.Worker]bool
	logger  sdklog.Logger
	// made are the workers that have not ended, by their instance keys.
	made map[string]*registered
}

// registered is a worker. Its options may still change until it starts.
type registered struct {
	queue   string
	options *sdkworker.Options
	// stop is set while it runs.
	stop context.CancelFunc
}

func newRegistrar(l *lockcore.Locker) *registrar {
	return &registrar{locker: l, clients: map[party.Worker]bool{}, logger: sdklog.NewStructuredLogger(slog.Default()), made: map[string]*registered{}}
}

func (r *registrar) madeClient(o client.Options) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[party.Worker{Namespace: cmp.Or(o.Namespace, client.DefaultNamespace), Identity: cmp.Or(o.Identity, defaultIdentity())}] = true
	if o.Logger != nil {
		r.logger = o.Logger
	}
}

// defaultIdentity returns the identity that the SDK gives to a client, and to its workers.
func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "Unknown"
	}
	return fmt.Sprintf("%d@%s@", os.Getpid(), host)
}

func (r *registrar) madeWorker(o sdkworker.PluginConfigureWorkerOptions) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[o.WorkerInstanceKey] = &registered{queue: o.TaskQueue, options: o.WorkerOptions}
}

// begin begins to register a worker that starts. await waits for the first registration, but not long.
func (r *registrar) begin(key string) (await func()) {
	if r == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.made[key]
	if w == nil || w.stop != nil { // the plugin was given to the client and to the worker
		return func() {}
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	tried, latest := make(chan struct{}), time.After(registerWait)
	go r.keep(ctx, w, tried)
	return func() {
		select {
		case <-tried:
		case <-latest:
		}
	}
}

// end ends the registration of a worker. It does not wait for a command that is under way.
func (r *registrar) end(key string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.made[key]; w != nil && w.stop != nil {
		w.stop()
	}
	delete(r.made, key)
}

// keep registers a worker until ctx ends, and closes tried after the first time. It logs the first of
// several failures.
func (r *registrar) keep(ctx context.Context, w *registered, tried chan<- struct{}) {
	again := time.NewTicker(registerEvery)
	defer again.Stop()
	for failed := false; ; {
		names, logger := r.names(w)
		var errs []error
		for _, name := range names {
			errs = append(errs, r.locker.Core().RegisterWorker(ctx, name))
		}
		err := errors.Join(errs...)
		if err != nil && !failed && ctx.Err() == nil {
			logger.Warn("lockstep: the worker could not register in the locks' collection, and lockstep doctor may report that it has no Lockstep",
				"taskQueue", w.queue, "error", err)
		}
		if failed = err != nil; tried != nil {
			close(tried)
			tried = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// names returns what the pollers of a worker may be called: a plugin does not know by which of its
// clients a worker was made. A plugin that no client was given knows no namespace.
func (r *registrar) names(w *registered) (names []party.Worker, logger sdklog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.clients) == 0 {
		return []party.Worker{{Queue: w.queue, Identity: cmp.Or(w.options.Identity, defaultIdentity())}}, r.logger
	}
	for c := range r.clients {
		names = append(names, party.Worker{Namespace: c.Namespace, Queue: w.queue, Identity: cmp.Or(w.options.Identity, c.Identity)})
	}
	return names, r.logger
}
