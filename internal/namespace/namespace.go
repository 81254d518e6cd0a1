// Package namespace asks a Temporal server for the IDs of its namespaces. An ID is the same on all clusters that replicate
// the namespace, and no two clusters have the same; names may be the same.
package namespace

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

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// timeout bounds one question.
const timeout = 10 * time.Second

// Error says that a worker does not know the ID of its namespace, and so cannot lock in it.
type Error struct {
	// Namespace is the name; empty when the worker's start failed, which does not tell.
	Namespace string
	// Err is the server's answer.
	Err error
}

func (e *Error) Error() string {
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
func (e *Error) Unwrap() error { return e.Err }

// IDs remembers what was asked. The zero value is ready to use.
type IDs struct {
	known sync.Map // IDs by key
}

type key struct {
	client client.Client
	name   string
}

// Of returns the ID of the namespace in which an activity runs, asking the server the first time. In the SDK's test
// environment it is the name. An error is an application failure of type lockstep.Unavailable, which is retryable.
func (n *IDs) Of(ctx context.Context) (string, error) {
	c, name := activity.GetClient(ctx), activity.GetInfo(ctx).Namespace
	if !currentrun.Connects(c) {
		return name, nil
	}
	if id, ok := n.known.Load(key{c, name}); ok {
		return id.(string), nil //nolint:forcetypeassert // nothing else is stored
	}
	id, err := Ask(ctx, c.WorkflowService(), name)
	if err != nil {
		return "", temporal.NewApplicationErrorWithOptions(err.Error(), wire.FailureUnavailable, temporal.ApplicationErrorOptions{Cause: err})
	}
	n.known.Store(key{c, name}, id)
	return id, nil
}

// Ask asks a server for the ID of a namespace. The error is an *[Error].
func Ask(ctx context.Context, service workflowservice.WorkflowServiceClient, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if err == nil && answer.GetNamespaceInfo().GetId() == "" {
		err = errors.New("the server's answer has no ID")
	}
	if err != nil {
		return "", &Error{Namespace: name, Err: err}
	}
	return answer.GetNamespaceInfo().GetId(), nil
}
