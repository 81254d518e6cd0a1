package worker

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"go.temporal.io/sdk/interceptor"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/interceptors"
	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// DefaultCluster is the name of the cluster where none is given.
const DefaultCluster = "default"

const maxCluster = 64

// Options is what a worker needs to guard steps.
type Options struct {
	// Locker takes and keeps the locks. Required.
	Locker *lockcore.Locker
	// Cluster names the Temporal cluster in lock IDs, so that several clusters can share a database: 1
	// to 64 bytes of valid UTF-8 without "/". All workers of a cluster must say the same. Defaults to
	// DefaultCluster.
	Cluster string
	// Rules guard activities by their type, at most one rule for each; see workflows.RuleFor. They are checked when the
	// plugin is made, and when a worker starts: a type that it does not have is an error, and so is one whose first argument
	// the rule cannot look at. A worker without the plugin finds the latter when a step is scheduled, which then fails.
	Rules []workflows.Rule
}

// checked fills in defaults and refuses what cannot be.
func (o Options) checked() (Options, error) {
	if o.Locker == nil {
		return o, &lockcore.InvalidError{Field: "worker.Options.Locker", Value: "nil", Bound: "a Locker made by lockcore.New"}
	}
	if o.Cluster == "" {
		o.Cluster = DefaultCluster
	}
	if len(o.Cluster) > maxCluster || !utf8.ValidString(o.Cluster) || strings.ContainsAny(o.Cluster, "/\x00") {
		return o, &lockcore.InvalidError{
			Field: "worker.Options.Cluster", Value: fmt.Sprintf("%q", protocol.Cut(o.Cluster, maxCluster)),
			Bound: fmt.Sprintf(`1 to %d bytes of valid UTF-8 without "/" or NUL`, maxCluster),
		}
	}
	return o, checkRules(o.Rules)
}

func (o Options) interceptor() *interceptors.Interceptor {
	return interceptors.New(interceptors.Options{Locker: o.Locker, Cluster: o.Cluster, Rules: o.Rules})
}

func (o Options) activities() *activities.Activities {
	return &activities.Activities{Locker: o.Locker, Cluster: o.Cluster}
}

// Interceptor makes the worker interceptor alone, for worker.Options.Interceptors of a worker that
// uses no plugins. Such a worker calls [Register] too. The error is a *lockcore.InvalidError that
// names the option.
func Interceptor(o Options) (interceptor.WorkerInterceptor, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	return o.interceptor(), nil
}

// Register registers Lockstep's activities on a worker that already exists, and the orphan reaper's workflow where it runs
// workflows; it may be called again. Give it the options of [Interceptor]: with another Cluster, or a Locker on another
// collection, locks would be taken in one place and released in another. The error is a *lockcore.InvalidError that names
// the option.
func Register(registry activities.Registry, o Options) error {
	o, err := o.checked()
	if err != nil {
		return err
	}
	activities.Register(registry, o.activities())
	if workflows, ok := registry.(WorkflowRegistry); ok {
		tryRegisterReaper(workflows)
	}
	return nil
}
