package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

func (d *Doctor) temporal(ctx context.Context) (Finding, error) {
	var namespace *serviceerror.NamespaceNotFound
	switch {
	case errors.As(d.NoTemporal, &namespace):
		return finding(Broken, d.NoTemporal.Error(), "name the namespace of your workers with --namespace")
	case d.NoTemporal != nil:
		return Finding{}, d.NoTemporal
	}
	info, err := d.Temporal.Service.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		return Finding{}, err
	}
	return ok("server %s, namespace %q, ID %s", info.GetServerVersion(), d.Temporal.Namespace, d.Temporal.NamespaceID)
}

func (d *Doctor) questions(ctx context.Context) (Finding, error) {
	_, err := d.ask(ctx, probe, "")
	var denied *serviceerror.PermissionDenied
	switch {
	case errors.As(err, &denied):
		return finding(Broken, err.Error(), "the credentials of workers and janitors have to allow DescribeWorkflowExecution")
	case err != nil:
		return Finding{}, err
	}
	return ok("Temporal answers questions about workflows")
}

func (d *Doctor) janitor(ctx context.Context) (Finding, error) {
	active, err := activeJanitor(ctx, d.Locker.Locker, d.Temporal.NamespaceID)
	if err != nil {
		return Finding{}, err
	}
	if active != nil {
		return janitorFinding(active)
	}
	const advice = "every worker with the plugin on its client has one, unless it is switched off; or run lockstep janitor"
	for s, err := range d.Locker.Status(ctx, lockcore.Filter{Prefix: janitor.LockName(""), States: []lockcore.State{lockcore.StateHolding}}) {
		if err == nil && s.ExpiresIn > 0 {
			return finding(Warning, "none works for this namespace and collection",
				fmt.Sprintf("one works for the namespace with the ID %s: is --namespace right? If it is, %s", strings.TrimPrefix(s.Resource, janitor.LockName("")), advice))
		}
	}
	return finding(Warning, "none works for this namespace and collection", advice)
}

// janitorFinding judges the janitor by its lock, which a living one renews each time a third of the TTL has passed.
func janitorFinding(active *lockcore.Status) (Finding, error) {
	every := (active.Silent + active.ExpiresIn) / 3
	if active.Silent <= every+every/20 {
		return ok("one works on %s: it renewed its lock %s ago, as it does every %s", active.Host, Short(active.Silent), Short(every))
	}
	return finding(Warning, fmt.Sprintf("that on %s has not renewed its lock for %s, as it should every %s: its process may have died", active.Host, Short(active.Silent), Short(every)),
		fmt.Sprintf("the janitor of another worker takes over once that lock has ended, in %s, if a worker runs", Short(active.ExpiresIn)))
}

func (d *Doctor) orphans(ctx context.Context) (Finding, error) {
	found, err := d.Orphans(ctx, d.Logger)
	switch {
	case err != nil && len(found) == 0:
		return Finding{}, err
	case len(found) > 0:
		return finding(Warning, d.OrphansText(found), "a janitor ends them within a minute; "+d.command("janitor", "--once")+" does now")
	}
	return ok("closed workflows have left nothing")
}

// OrphansText counts orphans, and names the first of them.
func (s *Site) OrphansText(found []Orphan) string {
	return fmt.Sprintf("%s of closed workflows, such as that of %q on %q",
		table.Word(len(found), "1 lock or queued request", fmt.Sprintf("%d locks and queued requests", len(found))), found[0].Party.Name, s.ResourceName(found[0].Resource))
}

func (d *Doctor) deadlocks(ctx context.Context) (Finding, error) {
	found, err := d.Deadlocks(ctx)
	switch {
	case err != nil && len(found) == 0:
		return Finding{}, err
	case len(found) > 0:
		return finding(Warning, d.DeadlockText(found[0]), "one that stays for 10 s says that no process looks after the queues: see the janitor")
	}
	return ok("there is none")
}

// maxAsked bounds the workflows that attempts asks Temporal about.
const maxAsked = 100

// attempts looks for activities that wait for a lock and may only be attempted a few times. Under a rule each wait uses up an attempt, and
// the last one fails the activity: one with a single attempt is never seen. It asks about the workflows in the queues, up to maxAsked.
func (d *Doctor) attempts(ctx context.Context) (Finding, error) {
	resources, err := d.Resources(ctx, lockcore.Filter{Contended: true})
	if err != nil {
		return Finding{}, err
	}
	waiting := map[string]bool{} // workflows
	for i := range resources {
		for _, e := range resources[i].Waiters {
			if e.Party.Workflow != "" && e.Party.Namespace == d.Temporal.NamespaceID {
				waiting[e.Party.Workflow] = true
			}
		}
	}
	workflows := slices.Sorted(maps.Keys(waiting))
	asked := workflows[:min(len(workflows), maxAsked)]
	var few []string
	for _, workflow := range asked {
		doing, err := d.Describe(ctx, workflow, "")
		if err != nil {
			return Finding{}, err
		}
		for _, a := range doing.Activities {
			if a.isBusy && a.maxAttempts > 0 {
				few = append(few, fmt.Sprintf("%s (%s) of %q, in attempt %d of %d", a.Type, a.ID, workflow, a.Attempt, a.maxAttempts))
			}
		}
	}
	switch {
	case len(few) > 0:
		return finding(Warning, fmt.Sprintf("%s that may be attempted only a few times %s for a lock, such as %s", table.Count(len(few), "activity"), table.Word(len(few), "waits", "wait"), few[0]),
			"under a rule each wait uses up an attempt, and the last one fails the activity: set no MaximumAttempts, or lock with a guard, which waits without attempts")
	case len(asked) < len(workflows):
		return ok("no activity among the first %d of %d waiting workflows uses up its attempts by waiting", len(asked), len(workflows))
	}
	return ok("no activity uses up its attempts by waiting")
}

// listsWorkers is the advice if Temporal has no list of workers.
const listsWorkers = "servers from 1.30 on list their workers; for 1.29, set frontend.WorkerHeartbeatsEnabled and frontend.ListWorkersEnabled to true in its dynamic configuration. " +
	"Until then, check that all workers of a task queue have the plugin"

// workers looks for workers without the plugin on task queues that workers with the plugin poll too. It compares the pollers of a task queue,
// which the server names for five minutes after their last poll, with the heartbeats of workers, which contain the names of plugins.
func (d *Doctor) workers(ctx context.Context) (Finding, error) {
	heard, err := d.heartbeats(ctx)
	var unimplemented *serviceerror.Unimplemented
	switch {
	case errors.As(err, &unimplemented):
		return finding(Unknown, "the server does not list its workers: "+err.Error(), listsWorkers)
	case err != nil:
		return Finding{}, err
	}
	checked, without, silent := 0, map[string][]string{}, map[string][]string{} // the maps are by task queue
	for queue, listed := range heard {
		with := func(identity string) bool { return listed[identity].with }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(listed)), with) {
			continue
		}
		pollers, err := d.polling(ctx, queue)
		if err != nil {
			return Finding{}, err
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(pollers)), with) { // the worker with the plugin was killed
			continue
		}
		checked++
		for _, identity := range slices.Sorted(maps.Keys(pollers)) {
			text := identity + lastPoll(pollers[identity])
			switch w := listed[identity]; {
			case w.without:
				without[queue] = append(without[queue], text)
			case !w.with && !w.ended:
				silent[queue] = append(silent[queue], text)
			}
		}
	}
	switch {
	case len(without) > 0:
		return finding(Broken, "workers without Lockstep poll task queues of workers with it: "+queuesText(without),
			"they run guarded steps without locks: install the plugin there, or stop them. The server lists a worker for five minutes after its last poll: if it was stopped since, repeat the check then")
	case len(silent) > 0:
		return finding(Unknown, "workers without heartbeats poll task queues of workers with Lockstep: "+queuesText(silent),
			"a worker that has just started or stopped may have none: repeat the check in five minutes. Otherwise check that it has the plugin, and an SDK that sends heartbeats")
	case checked == 0:
		return d.noWorkers(ctx)
	}
	return ok("on %s every poller has Lockstep", table.Count(checked, "task queue"))
}

// lastPoll describes the last poll of a worker, unless it polls now: the server holds a poll for a minute.
func lastPoll(at time.Time) string {
	ago := time.Since(at)
	if at.IsZero() || ago < time.Minute {
		return ""
	}
	return fmt.Sprintf(", whose last poll began %s ago", Short(ago))
}

// noWorkers is the finding if no worker with the plugin is listed and polls. A server that accepts no heartbeats lists none.
func (d *Doctor) noWorkers(ctx context.Context) (Finding, error) {
	answer, err := d.Temporal.Service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: d.Temporal.Namespace})
	switch {
	case err != nil:
		return Finding{}, err
	case !answer.GetNamespaceInfo().GetCapabilities().GetWorkerHeartbeats():
		return finding(Unknown, "the server accepts no heartbeats of workers, and so does not know their plugins", listsWorkers)
	}
	return finding(Warning, "Temporal knows of no worker with the plugin that polls",
		"workers send a heartbeat when they start and once a minute, unless client.Options.WorkerHeartbeatInterval is negative")
}

// worker describes the listed workers with the same task queue and identity.
type worker struct {
	// with and without are set if a running worker has Lockstep's plugin, or lacks it.
	with, without bool
	// ended is set if a worker has stopped. The server still lists it as a poller for a while.
	ended bool
}

// heartbeatAge is the age from which on a heartbeat without the plugin is ignored: a worker that was killed may have had the identity of one
// that was started later. Server 1.29 keeps heartbeats for a day, and later ones for five minutes.
const heartbeatAge = 5 * time.Minute

// heartbeats returns the listed workers by task queue and identity.
func (d *Doctor) heartbeats(ctx context.Context) (map[string]map[string]worker, error) {
	heard := map[string]map[string]worker{}
	add := func(queue, identity string, state enumspb.WorkerStatus, plugins []*workerpb.PluginInfo, old bool) {
		if heard[queue] == nil {
			heard[queue] = map[string]worker{}
		}
		w := heard[queue][identity]
		switch {
		case state == enumspb.WORKER_STATUS_SHUTDOWN || state == enumspb.WORKER_STATUS_SHUTTING_DOWN:
			w.ended = true
		case slices.ContainsFunc(plugins, func(p *workerpb.PluginInfo) bool { return p.GetName() == wire.PluginName }):
			w.with = true
		case !old:
			w.without = true
		}
		heard[queue][identity] = w
	}
	for page := []byte(nil); ; {
		answer, err := d.Temporal.Service.ListWorkers(ctx, &workflowservice.ListWorkersRequest{Namespace: d.Temporal.Namespace, PageSize: 1000, NextPageToken: page})
		if err != nil {
			return nil, err
		}
		for _, w := range answer.GetWorkers() {
			add(w.GetTaskQueue(), w.GetWorkerIdentity(), w.GetStatus(), w.GetPlugins(), false)
		}
		if len(answer.GetWorkers()) == 0 { // servers before 1.31 have only this list; later ones have both, with the same workers
			for _, info := range answer.GetWorkersInfo() { //nolint:staticcheck // deprecated for its size
				w := info.GetWorkerHeartbeat()
				add(w.GetTaskQueue(), w.GetWorkerIdentity(), w.GetStatus(), w.GetPlugins(), time.Since(w.GetHeartbeatTime().AsTime()) > heartbeatAge)
			}
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			return heard, nil
		}
	}
}

// queuesText lists task queues with the identities of workers.
func queuesText(workers map[string][]string) string {
	var queues []string
	for _, queue := range slices.Sorted(maps.Keys(workers)) {
		queues = append(queues, fmt.Sprintf("%s (%s)", queue, strings.Join(workers[queue], ", ")))
	}
	return strings.Join(queues, "; ")
}

// polling returns the workers that poll a task queue for workflows or activities, with the time of the last poll of each identity.
func (d *Doctor) polling(ctx context.Context, queue string) (map[string]time.Time, error) {
	found := map[string]time.Time{}
	for _, kind := range []enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_WORKFLOW, enumspb.TASK_QUEUE_TYPE_ACTIVITY} {
		answer, err := d.Temporal.Service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: d.Temporal.Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: queue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
		})
		if err != nil {
			return nil, err
		}
		for _, poller := range answer.GetPollers() {
			identity := poller.GetIdentity()
			if at := timeOf(poller.GetLastAccessTime()); !at.Before(found[identity]) {
				found[identity] = at
			}
		}
	}
	return found, nil
}
