package currentrun

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
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
			"collection was dropped or replaced: lockstep replaces %s --reason …", workflows, workflows)
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
