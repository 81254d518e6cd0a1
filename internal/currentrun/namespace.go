package currentrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// namespaceTimeout bounds one question about a namespace.
const namespaceTimeout = 10 * time.Second

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
	var denied *serviceerror.PermissionDenied
	if errors.As(e.Err, &denied) {
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
	id, err := n.id(ctx)
	if err != nil {
		return wire.Run{}, err
	}
	execution := activity.GetInfo(ctx).WorkflowExecution
	return wire.Run{Namespace: id, WorkflowID: execution.ID, RunID: execution.RunID}, nil
}

func (n *NamespaceIDs) id(ctx context.Context) (string, error) {
	c, name := activity.GetClient(ctx), activity.GetInfo(ctx).Namespace
	if !IsRealClient(c) {
		return name, nil
	}
	if id, ok := n.known.Load(namespaceKey{c, name}); ok {
		return id.(string), nil //nolint:forcetypeassert // nothing else is stored
	}
	id, err := NamespaceID(ctx, c.WorkflowService(), name)
	if err != nil {
		return "", temporal.NewApplicationErrorWithOptions(err.Error(), wire.FailureUnavailable, temporal.ApplicationErrorOptions{Cause: err})
	}
	n.known.Store(namespaceKey{c, name}, id)
	return id, nil
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
