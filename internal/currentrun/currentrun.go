package currentrun

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// askTimeout bounds one question about runs.
	askTimeout = 5 * time.Second
	// namespaceTimeout bounds one question about a namespace.
	namespaceTimeout = 10 * time.Second
	// collectionTimeout bounds a question about the collection.
	collectionTimeout = 2 * time.Second
)

// IsCurrent reports whether Temporal reports a run as its workflow's current one, and open. Call it in an activity.
func IsCurrent(ctx context.Context, own wire.Run) (bool, error) {
	c := activity.GetClient(ctx)
	if !IsRealClient(c) { // in the test environment no run follows another
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	now, err := Describe(ctx, c.WorkflowService(), activity.GetInfo(ctx).Namespace, own.WorkflowID, "")
	if err != nil {
		return false, fmt.Errorf("lockstep: ask which run of workflow %q is the current one: %w", own.WorkflowID, err)
	}
	info := now.GetWorkflowExecutionInfo()
	return IsOpen(info.GetStatus()) && info.GetExecution().GetRunId() == own.RunID, nil
}

// Describer is the part of Temporal's service that Describe needs.
type Describer interface {
	DescribeWorkflowExecution(ctx context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, opts ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error)
}

// Describe asks Temporal about a run of a workflow, or about the current run if runID is empty. The server answers from the run's
// state and not from visibility, which lags behind. The answer has the run's info, unless there is an error.
func Describe(
	ctx context.Context, service Describer, namespace, workflowID, runID string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	answer, err := service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
	})
	if err == nil && answer.GetWorkflowExecutionInfo() == nil {
		return nil, fmt.Errorf("lockstep: the server's answer about workflow %q is empty", workflowID)
	}
	return answer, err
}

// HasEnded reports whether a run with this status has ended for good, so that no lock is taken in its name again. It is false for
// a run that continued as new, because the next run may continue with its locks, and for a status that this version does not know.
func HasEnded(status enumspb.WorkflowExecutionStatus) bool {
	switch status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED,
		enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return true
	default:
		return false
	}
}

// IsOpen reports whether a run with this status is open. A status that this version does not know counts as open.
func IsOpen(status enumspb.WorkflowExecutionStatus) bool {
	return !HasEnded(status) && status != enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
}

// IsRealClient reports whether a client reaches a server. In the SDK's test environments a client is nil, or a mock that ends the process when it
// is called. There no waiter is woken, and no goroutine may outlive the workflow.
func IsRealClient(c client.Client) bool {
	if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return false
	}
	service := reflect.TypeOf(c.WorkflowService())
	if service == nil {
		return false
	}
	_, mocked := service.MethodByName("EXPECT")
	return !mocked
}

// NamespaceError reports that a worker could not learn the ID of its namespace, and so cannot lock in it.
type NamespaceError struct {
	// Namespace is the name. It is empty if the start of the worker failed, because the SDK does not report the name then.
	Namespace string
	// Err is the server's answer.
	Err error
}

func (e *NamespaceError) Error() string {
	name := "namespace"
	if e.Namespace != "" {
		name = fmt.Sprintf("namespace %q", e.Namespace)
	}
	text := fmt.Sprintf("lockstep: the worker did not learn the ID of its %s, which lock IDs begin with: %v", name, e.Err)
	if _, denied := errors.AsType[*serviceerror.PermissionDenied](e.Err); denied {
		text += "; its credentials must allow DescribeNamespace"
	}
	return text
}

// Unwrap returns the server's answer.
func (e *NamespaceError) Unwrap() error { return e.Err }

// NamespaceIDs looks up the IDs of namespaces and remembers them. An ID is the same on all clusters that replicate the namespace,
// and unique to it, while unrelated clusters may use the same names. The zero value is ready to use.
type NamespaceIDs struct {
	known sync.Map // IDs by namespaceKey
}

type namespaceKey struct {
	client client.Client
	name   string
}

// Run returns the workflow run that an activity belongs to. The first call for a namespace asks the server for its ID; in the SDK's
// test environment the ID is the name. The error is an application failure of type lockstep.Unavailable, which is retryable.
func (n *NamespaceIDs) Run(ctx context.Context) (wire.Run, error) {
	c, info := activity.GetClient(ctx), activity.GetInfo(ctx)
	run := wire.Run{Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID}
	if !IsRealClient(c) {
		return run, nil
	}
	key := namespaceKey{c, info.Namespace}
	id, known := n.known.Load(key)
	if !known {
		asked, err := NamespaceID(ctx, c.WorkflowService(), info.Namespace)
		if err != nil {
			return wire.Run{}, temporal.NewApplicationErrorWithOptions(err.Error(), wire.FailureUnavailable, temporal.ApplicationErrorOptions{Cause: err})
		}
		id, _ = n.known.LoadOrStore(key, asked)
	}
	run.Namespace, _ = id.(string)
	return run, nil
}

// NamespaceID asks a server for the ID of a namespace. The error is a *[NamespaceError].
func NamespaceID(ctx context.Context, service workflowservice.WorkflowServiceClient, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	answer, err := service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if err == nil && answer.GetNamespaceInfo().GetId() == "" {
		err = errors.New("the server's answer has no ID")
	}
	if err != nil {
		return "", &NamespaceError{Namespace: name, Err: err}
	}
	return answer.GetNamespaceInfo().GetId(), nil
}

// LearnCollection asks the database for the ID of the Locker's collection, unless it is known. It takes at most two seconds.
func LearnCollection(ctx context.Context, locker Locker) {
	if locker.KnownCollectionID() == "" {
		ctx, cancel := context.WithTimeout(ctx, Bound(ctx, collectionTimeout))
		defer cancel()
		_, _ = locker.CollectionID(ctx) // the next command learns it
	}
}

// CheckCollection finds workers that keep their locks in another collection than the workflow's worker: they would run a step next to steps
// that its lock excludes. The workflow's worker writes the ID of its collection into everything that it schedules, once it knows the ID.
// replaced is set if an operator has recorded that this collection replaces that one: what was held there is lost. The error is retryable: this
// worker may have a wrong configuration, or may have been led to another server by a name, and neither can be told from a collection that was
// dropped. It is nil if one of the IDs is not known.
func CheckCollection(ctx context.Context, locker Locker, workflows string) (replaced bool, err error) {
	own := locker.KnownCollectionID()
	if workflows == "" || own == workflows {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, Bound(ctx, collectionTimeout))
	defer cancel()
	replaced, now, err := locker.Replaces(ctx, workflows)
	switch {
	case err != nil && own == "", now == workflows, replaced:
		return replaced, nil
	case err == nil:
		own = now
	}
	advice := fmt.Sprintf("the request names %.100q, which is not the ID of a collection", workflows)
	if isCollectionID(workflows) {
		advice = fmt.Sprintf("the workflow's worker in that with the ID %s: give the Lockers of both the same database and collection; if that "+
			"collection was dropped or replaced: lockstep replaces %s --reason 'your reason'", workflows, workflows)
	}
	return false, temporal.NewApplicationError(
		fmt.Sprintf("lockstep: this worker keeps its locks in the collection with the ID %s, and %s", own, advice), wire.FailureOtherCollection)
}

// isCollectionID reports whether a text can be an ID. A client that may start activities can write any text there, and operators
// copy the command with the ID from the failure into a shell.
func isCollectionID(text string) bool {
	const maxID = 64 // rand.Text makes 26 letters and digits
	return len(text) <= maxID && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// Replaced returns the failure of an activity that carries the ID of a collection that was replaced, if what it needs is lost.
func Replaced(lockID, resource, workflows string) error {
	return wire.LostFailure(&lockcore.LostError{
		Resource: resource, LockID: lockID, Reason: fmt.Sprintf("the collection with the ID %s, in which it was held, was dropped or replaced", workflows),
	}, nil)
}

const (
	// mostOthers bounds the runs from which one request takes over. Each of its resources may belong to another run.
	mostOthers = 8
	// enterTimeout bounds a request. An attempt that cannot reach the database must report that instead of waiting in its slot.
	enterTimeout = 10 * time.Second
)

// Locker is the part of a *lockcore.Steps that this package needs.
type Locker interface {
	Enter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error)
	TryEnter(ctx context.Context, req lockcore.StepRequest) ([]lockcore.Lease, error)
	Leave(ctx context.Context, leases ...lockcore.Lease) error
	Verify(ctx context.Context, v lockcore.Verify) error
	Raise(ctx context.Context, r lockcore.Raise) error
	Release(ctx context.Context, r lockcore.Release) error
	ReleaseCommitted(ctx context.Context, r lockcore.Release) (missed []lockcore.LostError, err error)
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
	KnownCollectionID() string
	CollectionID(ctx context.Context) (string, error)
	Replaces(ctx context.Context, id string) (replaces bool, own string, err error)
}

// InlineWait returns the longest time that an attempt may wait for its locks in its slot. A short wait saves the events of
// parking; the bound leaves most of the attempt's time to the step.
func InlineWait(info activity.Info) time.Duration {
	wait := 2 * time.Second
	for _, limit := range []time.Duration{info.StartToCloseTimeout, info.HeartbeatTimeout} {
		if limit > 0 {
			wait = min(wait, limit/4)
		}
	}
	return wait
}

// AttemptName describes an attempt of an activity, for people.
func AttemptName(info activity.Info) string {
	return fmt.Sprintf("%s, activity %s, attempt %d", info.ActivityType.Name, info.ActivityID, info.Attempt)
}

// Bound returns the time that a command of an attempt may take: at most half of what is left to the attempt, so that it can report the outcome.
func Bound(ctx context.Context, most time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(most, time.Until(deadline)/2)
	}
	return most
}

// Enter calls Locker.Enter, or Locker.TryEnter, for a request of own, in an activity of that run, and takes over locks that other runs of the
// workflow hold. Its error is that of the Locker, or reports that Temporal could not be asked. A *lockcore.OtherRunError means that own is not
// the current run. If own may not take over all, Enter leaves the resources that it has by then. A lock ID without runs has nothing to take over.
// Enter takes at most 10 s; see [Bound].
func Enter(ctx context.Context, locker Locker, try bool, own wire.Run, req lockcore.StepRequest) (leases []lockcore.Lease, err error) {
	bound, enter := Bound(ctx, enterTimeout), locker.Enter
	if try {
		enter = locker.TryEnter
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	req.MaxWait = min(req.MaxWait, bound/2)
	req.Call = rand.Text() // repeated after a take-over, it is the same request
	err = takeOver(ctx, own, func(replaced string) (err error) {
		req.TakeOver = replaced
		leases, err = enter(ctx, req)
		return err
	})
	if err != nil && len(leases) > 0 {
		return nil, errors.Join(err, locker.Leave(context.WithoutCancel(ctx), leases...))
	}
	return leases, err
}

// takeOver calls ask until no other run of the workflow holds what it needs, or Temporal does not report own as the current run: first with
// "", and then with the run from which own takes over. The error is that of ask, or only Temporal's if it cannot be asked, because
// nothing is known of the runs then.
func takeOver(ctx context.Context, own wire.Run, ask func(replaced string) error) error {
	err := ask("")
	for range mostOthers {
		other, ok := errors.AsType[*lockcore.OtherRunError](err)
		if !ok {
			break
		}
		if current, failed := IsCurrent(ctx, own); failed != nil || !current {
			return cmp.Or(failed, err)
		}
		err = ask(other.Other)
	}
	return err
}

// Verify calls Locker.Verify for own, in an activity of that run. If own inherits from other runs of the workflow, it takes over
// what they hold. If not, a hold of another run is a loss, because a guarded step of own would have taken it over.
func Verify(ctx context.Context, locker Locker, own wire.Run, v lockcore.Verify) error {
	var other *lockcore.OtherRunError
	return takeOver(ctx, own, func(replaced string) error {
		if other != nil && !v.Inherits {
			return &lockcore.LostError{Resource: other.Resource, LockID: other.LockID, Reason: "an earlier run holds it, and no step of this run does"}
		}
		v.TakeOver = replaced
		err := locker.Verify(ctx, v)
		errors.As(err, &other)
		return err
	})
}

// Raise calls Locker.Raise for own, in an activity of that run, and takes over what other runs of the workflow hold if own is the
// current run. Otherwise the error is the *lockcore.OtherRunError, or reports that Temporal could not be asked.
func Raise(ctx context.Context, locker Locker, own wire.Run, r lockcore.Raise) error {
	return takeOver(ctx, own, func(replaced string) error {
		r.TakeOver = replaced
		return locker.Raise(ctx, r)
	})
}

// releaseBatch is the largest number of resources in one release.
const releaseBatch = 100

// Release ends the locks of a workflow, or of one of its steps, as workflow code has decided. own is the run that carries it out: it decided
// the release, was made by a reset of the run that did, or follows a run that handed over. mayInherit reports whether no run after own may
// continue with the locks of earlier runs; except, if not empty, is a run whose locks stay.
//
// If the saga has committed, Release logs the locks that it had lost without noticing.
func Release(
	ctx context.Context, locker Locker, logger log.Logger, own wire.Run, p wire.ReleaseParams, except string, mayInherit func() (bool, error),
) error {
	r := lockcore.Release{LockID: own.LockID(), Run: own.RunID, Order: lockcore.LastAttempt(p.Schedule)}
	switch {
	case p.Step != "":
		r.LockID = own.StepLockID(p.Step)
	case p.LockID != "" && p.LockID != r.LockID: // one of the caller's choice has no runs
		return release(ctx, locker, logger, lockcore.Release{LockID: p.LockID, Order: r.Order}, p.Resources, false)
	}
	if p.Handed { // the orders of own begin again at 1
		r.Run = p.Run
	}
	err := release(ctx, locker, logger, r, p.Resources, p.Committed)
	if err != nil || p.Handed {
		return err
	}
	if p.Run != "" && p.Run != own.RunID { // a reset has made own out of the run that decided this
		r.Run = p.Run
		names := p.Resources
		if p.Step == "" { // only what is there: a release of what is not would erase the evidence that it was lost
			held, err := inherited(ctx, locker, own, p)
			if err != nil {
				return err
			}
			names = held[p.Run]
		}
		if err := release(ctx, locker, logger, r, names, false); err != nil {
			return err
		}
	}
	if p.Step != "" || !p.Inherits && !p.All {
		return nil
	}
	held, err := inherited(ctx, locker, own, p)
	if delete(held, except); err != nil || len(held) == 0 {
		return err
	}
	if may, err := mayInherit(); !may {
		return err
	}
	r.Order, r.Reason = lockcore.LastAttempt(math.MaxInt32), "released by a later run of its workflow"
	for r.Run = range held {
		if err := release(ctx, locker, logger, r, held[r.Run], false); err != nil {
			return err
		}
	}
	return nil
}

// release calls Locker.Release, or ReleaseCommitted, for any number of resources.
func release(ctx context.Context, locker Locker, logger log.Logger, r lockcore.Release, names []string, committed bool) error {
	for batch := range slices.Chunk(names, releaseBatch) {
		r.Resources = batch
		if !committed {
			if err := locker.Release(ctx, r); err != nil {
				return err
			}
			continue
		}
		missed, err := locker.ReleaseCommitted(ctx, r)
		for i := range missed {
			logger.Error("lockstep: a saga committed although it had lost a lock: another party may have held it before the commit",
				"lockId", r.LockID, "run", r.Run, "resource", missed[i].Resource, "error", &missed[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inherited lists the resources of a release that other runs of own's workflow hold, by run.
func inherited(ctx context.Context, locker Locker, own wire.Run, p wire.ReleaseParams) (map[string][]string, error) {
	byRun := map[string][]string{}
	for s, err := range locker.Status(ctx, lockcore.Filter{LockID: own.LockID(), Contended: true}) { // in the order of the names
		known := byRun[s.Run]
		switch {
		case errors.Is(err, lockcore.ErrDamaged): // its locks are out of reach, those of other documents are not
		case err != nil:
			return nil, err
		case s.Run == "" || s.Run == own.RunID || s.State == lockcore.StateDraining || len(known) > 0 && known[len(known)-1] == s.Resource:
		case p.All || slices.Contains(p.Resources, s.Resource):
			byRun[s.Run] = append(known, s.Resource)
		}
	}
	return byRun, nil
}
