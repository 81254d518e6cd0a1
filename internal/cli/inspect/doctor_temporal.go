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
	active, err := activeJanitor(ctx, d.Locker, d.Temporal.NamespaceID)
	switch {
	case err != nil:
		return Finding{}, err
	case active != nil:
		return ok("one works on %s, last heard from %s ago", active.Host, Short(active.Silent))
	}
	return finding(Warning, "none works for this namespace and collection",
		"every worker with the plugin on its client has one, unless it is switched off; or run lockstep janitor")
}

func (d *Doctor) orphans(ctx context.Context) (Finding, error) {
	found, err := d.Orphans(ctx, d.Logger)
	switch {
	case err != nil && len(found) == 0:
		return Finding{}, err
	case len(found) > 0:
		return finding(Warning,
			fmt.Sprintf("%d locks and queued requests of closed workflows, such as that of %q on %q", len(found), found[0].Party.Name, d.ResourceName(found[0].Resource)),
			"a janitor ends them within a minute; "+d.command("janitor", "--once")+" does now")
	}
	return ok("closed workflows have left nothing")
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
		return finding(Warning, fmt.Sprintf("%d activities that may be attempted only a few times wait for a lock, such as %s", len(few), few[0]),
			"under a rule each wait uses up an attempt, and the last one fails the activity: set no MaximumAttempts, or lock with a guard, which waits without attempts")
	case len(asked) < len(workflows):
		return ok("no activity among the first %d of %d waiting workflows uses up its attempts by waiting", len(asked), len(workflows))
	}
	return ok("no activity uses up its attempts by waiting")
}

// workers looks for workers without the plugin on task queues that also have workers with it. Newer servers list their
// workers, with the plugins of each.
func (d *Doctor) workers(ctx context.Context) (Finding, error) {
	with, without := map[string]bool{}, map[string][]string{} // by task queue
	for page := []byte(nil); ; {
		answer, err := d.Temporal.Service.ListWorkers(ctx, &workflowservice.ListWorkersRequest{Namespace: d.Temporal.Namespace, PageSize: 1000, NextPageToken: page})
		var unimplemented *serviceerror.Unimplemented
		switch {
		case errors.As(err, &unimplemented):
			return ok("this server does not list its workers: see pollers")
		case err != nil:
			return Finding{}, err
		}
		for _, w := range answer.GetWorkers() {
			state, queue := w.GetStatus(), w.GetTaskQueue()
			switch {
			case state == enumspb.WORKER_STATUS_SHUTDOWN || state == enumspb.WORKER_STATUS_SHUTTING_DOWN: // still listed for a while
			case slices.ContainsFunc(w.GetPlugins(), func(p *workerpb.PluginInfo) bool { return p.GetName() == wire.PluginName }):
				with[queue] = true
			default:
				without[queue] = append(without[queue], w.GetWorkerIdentity())
			}
		}
		if page = answer.GetNextPageToken(); len(page) == 0 {
			break
		}
	}
	maps.DeleteFunc(without, func(queue string, _ []string) bool { return !with[queue] })
	switch {
	case len(without) > 0:
		return finding(Broken, "workers without Lockstep on task queues that have others with it: "+queuesText(without),
			"they run guarded steps without locks: install the plugin there, or stop them")
	case len(with) == 0:
		return finding(Warning, "Temporal knows of no worker with the plugin", "workers report themselves by heartbeats once a minute; those of older SDKs do not")
	}
	return ok("on %d task queues all have Lockstep", len(with))
}

// queuesText lists task queues with the identities of workers.
func queuesText(workers map[string][]string) string {
	var queues []string
	for _, queue := range slices.Sorted(maps.Keys(workers)) {
		queues = append(queues, fmt.Sprintf("%s (%s)", queue, strings.Join(workers[queue], ", ")))
	}
	return strings.Join(queues, "; ")
}

// registrationAge is the age up to which a registration counts. A worker repeats it every minute, and the server names a
// poller for five minutes after its last poll.
const registrationAge = 10 * time.Minute

// registrations are the workers with the plugin on one task queue.
type registrations struct {
	identities map[string]bool
	// guessed are the identities that a plugin without a client had to guess.
	guessed map[string]bool
}

// pollers looks for workers without the plugin on task queues of workers that have registered in the locks' collection.
// Every server names its pollers.
func (d *Doctor) pollers(ctx context.Context) (Finding, error) {
	registered, err := d.Locker.Workers(ctx, registrationAge)
	if err != nil {
		return Finding{}, err
	}
	queues := map[string]registrations{}
	for _, w := range registered {
		if w.Namespace != "" && w.Namespace != d.Temporal.Namespace {
			continue
		}
		if _, known := queues[w.Queue]; !known {
			queues[w.Queue] = registrations{map[string]bool{}, map[string]bool{}}
		}
		queues[w.Queue].identities[w.Identity] = true
		if w.Namespace == "" {
			queues[w.Queue].guessed[w.Identity] = true
		}
	}
	without, unsure := map[string][]string{}, map[string][]string{}
	for queue, r := range queues {
		polling, err := d.polling(ctx, queue)
		if err != nil {
			return Finding{}, err
		}
		strangers, mayBeGuessed := r.compare(polling)
		switch {
		case len(strangers) == 0:
		case mayBeGuessed:
			unsure[queue] = strangers
		default:
			without[queue] = strangers
		}
	}
	switch {
	case len(without) > 0:
		return finding(Broken, "workers that have not registered poll task queues of workers with Lockstep: "+queuesText(without),
			"without the plugin they run guarded steps without locks: install it there, or stop them")
	case len(unsure) > 0:
		return finding(Warning, "workers poll that have not registered by these names: "+queuesText(unsure),
			"see to it that they have the plugin; one that is given to the client knows the worker's identity")
	case len(queues) == 0:
		return finding(Warning, "no worker with the plugin has registered for this namespace in this collection", "see to it that all workers of a task queue have the plugin")
	}
	return ok("on %d task queues every poller has registered", len(queues))
}

// compare returns the pollers that have not registered, and whether one of them may have registered by a guessed name.
func (r registrations) compare(polling []string) (strangers []string, mayBeGuessed bool) {
	unused := maps.Clone(r.guessed)
	for _, identity := range polling {
		delete(unused, identity)
		if !r.identities[identity] {
			strangers = append(strangers, identity)
		}
	}
	return strangers, len(unused) > 0
}

// polling returns the identities of the workers that poll a task queue for workflows or activities.
func (d *Doctor) polling(ctx context.Context, queue string) ([]string, error) {
	found := map[string]bool{}
	for _, kind := range []enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_WORKFLOW, enumspb.TASK_QUEUE_TYPE_ACTIVITY} {
		answer, err := d.Temporal.Service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: d.Temporal.Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: queue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
		})
		if err != nil {
			return nil, err
		}
		for _, poller := range answer.GetPollers() {
			found[poller.GetIdentity()] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}
