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
	// registerEvery is the interval between two registrations of a worker. The doctor accepts a registration for several times as long.
	registerEvery = time.Minute
	// registerWait bounds the time for which a worker that starts waits for its first registration.
	registerWait = 2 * time.Second
)

// registrar registers the running workers of a plugin in the locks' collection. "lockstep doctor" compares them with the pollers of their
// task queues, to find workers without Lockstep: those run guarded steps without locks, and nothing fails. A nil registrar does nothing.
type registrar struct {
	locker *lockcore.Locker
	// indexes is done once the indexes were checked.
	indexes sync.Once

	mu sync.Mutex
	// clients has the namespaces of the clients that the plugin was given to, with the identities that their workers have by default.
	clients map[party.Worker]bool
	// logger is that of the latest client.
	logger sdklog.Logger
	// workers has those that have not ended, by their instance keys.
	workers map[string]*registered
}

// registered is a worker. Its options may change until it starts.
type registered struct {
	queue   string
	options *sdkworker.Options
	// cancel is set while the worker runs.
	cancel context.CancelFunc
}

func newRegistrar(l *lockcore.Locker) *registrar {
	return &registrar{
		locker: l, clients: map[party.Worker]bool{}, logger: sdklog.NewStructuredLogger(slog.Default()), workers: map[string]*registered{},
	}
}

func (r *registrar) addClient(o client.Options) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients[party.Worker{Namespace: cmp.Or(o.Namespace, client.DefaultNamespace), Identity: cmp.Or(o.Identity, defaultIdentity())}] = true
	if o.Logger != nil {
		r.logger = o.Logger
	}
}

func (r *registrar) hasClients() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.clients) > 0
}

// workflowsOnly reports whether a worker runs no activities except local ones, which have no locks.
func (r *registrar) workflowsOnly(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workers[key]
	return w != nil && w.options.LocalActivityWorkerOnly
}

func (r *registrar) log() sdklog.Logger {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logger
}

// defaultIdentity returns the identity that the SDK gives to a client, and to its workers.
func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "Unknown"
	}
	return fmt.Sprintf("%d@%s@", os.Getpid(), host)
}

func (r *registrar) addWorker(o sdkworker.PluginConfigureWorkerOptions) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers[o.WorkerInstanceKey] = &registered{queue: o.TaskQueue, options: o.WorkerOptions}
}

// start begins to register a worker that starts. The channel is closed after the first registration.
func (r *registrar) start(key string) <-chan struct{} {
	tried := make(chan struct{})
	if r == nil {
		close(tried)
		return tried
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workers[key]
	if w == nil || w.cancel != nil { // the plugin was given to the client and to the worker
		close(tried)
		return tried
	}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	go r.keep(ctx, w, tried)
	return tried
}

// stop ends the registration of a worker. It does not wait for a command in progress.
func (r *registrar) stop(key string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.workers[key]; w != nil && w.cancel != nil {
		w.cancel()
	}
	delete(r.workers, key)
}

// keep registers a worker until ctx ends, and closes tried after the first time. It logs only the first of several failures in a row.
func (r *registrar) keep(ctx context.Context, w *registered, tried chan<- struct{}) {
	tick := time.NewTicker(registerEvery)
	defer tick.Stop()
	for failed := false; ; {
		names, logger := r.names(w)
		var errs []error
		for _, name := range names {
			errs = append(errs, r.locker.RegisterWorker(ctx, name))
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
		if !failed {
			r.indexes.Do(func() { r.checkIndexes(ctx, logger) })
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// checkIndexes logs a warning if the collection lacks indexes, because nothing else fails then. Workers need not have the right to ask.
func (r *registrar) checkIndexes(ctx context.Context, logger sdklog.Logger) {
	collection, missing, err := r.locker.MissingIndexes(ctx)
	if err == nil && len(missing) > 0 {
		logger.Warn("lockstep: indexes are missing, so idle documents stay forever and background work reads all documents: run lockstep init",
			"collection", collection, "missing", missing)
	}
}

// names returns the possible names of a worker's pollers: a plugin does not know which of its clients made the worker. If the plugin was
// given to no client, it knows no namespace.
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
