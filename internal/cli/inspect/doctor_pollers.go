package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

const (
	aboutPollers = "pollers"
	// registeredLately is how old the registration of a worker may be, which repeats it every minute.
	// The server names a poller for five minutes after its last poll.
	registeredLately = 10 * time.Minute
)

// registrations are the workers with the plugin on one task queue.
type registrations struct {
	identities map[string]bool
	// unsure are identities that a plugin has guessed, because it was given to no client.
	unsure map[string]bool
}

// pollers looks for workers without the plugin on task queues on which others have registered in the
// locks' collection. Every server names its pollers.
func (p *Patient) pollers(ctx context.Context) Finding {
	registered, err := p.Locker.Workers(ctx, registeredLately)
	if err != nil {
		return unanswered(aboutPollers, err)
	}
	queues := map[string]registrations{}
	for _, w := range registered {
		if w.Namespace != "" && w.Namespace != p.Temporal.Namespace {
			continue
		}
		if _, ok := queues[w.Queue]; !ok {
			queues[w.Queue] = registrations{map[string]bool{}, map[string]bool{}}
		}
		queues[w.Queue].identities[w.Identity] = true
		if w.Namespace == "" {
			queues[w.Queue].unsure[w.Identity] = true
		}
	}
	var without, unsure []string
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		polling, err := p.polling(ctx, queue)
		if err != nil {
			return unanswered(aboutPollers, err)
		}
		strangers, guessed := queues[queue].compare(polling)
		switch {
		case len(strangers) > 0 && guessed:
			unsure = append(unsure, fmt.Sprintf("%s (%s)", queue, strings.Join(strangers, ", ")))
		case len(strangers) > 0:
			without = append(without, fmt.Sprintf("%s (%s)", queue, strings.Join(strangers, ", ")))
		}
	}
	switch {
	case len(without) > 0:
		return Finding{
			aboutPollers, Broken, "workers that have not registered poll task queues of workers with Lockstep: " + strings.Join(without, "; "),
			"without the plugin they run guarded steps without locks: install it there, or stop them",
		}
	case len(unsure) > 0:
		return Finding{
			aboutPollers, Warning, "workers poll that have not registered by these names: " + strings.Join(unsure, "; "),
			"see to it that they have the plugin; one that is given to the client knows the worker's identity",
		}
	case len(queues) == 0:
		return Finding{aboutPollers, Warning, "no worker with the plugin has registered for this namespace in this collection", "see to it that all workers of a task queue have the plugin"}
	}
	return Finding{aboutPollers, OK, fmt.Sprintf("on %d task queues all who poll have registered", len(queues)), ""}
}

// compare returns the pollers that have not registered, and whether a plugin may have registered one of
// them under a name that it has guessed.
func (r registrations) compare(polling []string) (strangers []string, guessed bool) {
	unused := maps.Clone(r.unsure)
	for _, identity := range polling {
		delete(unused, identity)
		if !r.identities[identity] {
			strangers = append(strangers, identity)
		}
	}
	return strangers, len(unused) > 0
}

// polling returns the identities of the workers that poll a task queue for workflows or activities.
func (p *Patient) polling(ctx context.Context, queue string) ([]string, error) {
	found := map[string]bool{}
	for _, kind := range []enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_WORKFLOW, enumspb.TASK_QUEUE_TYPE_ACTIVITY} {
		answer, err := p.Temporal.Service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: p.Temporal.Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: queue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
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
