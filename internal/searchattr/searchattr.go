// Package searchattr asks Temporal whether a search attribute can be set. An attribute that a
// namespace does not have would fail the workflow task that sets it, again and again.
package searchattr

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/openrun"
)

const (
	// timeout bounds one question, and again is the pause after an answer that was not yes.
	timeout = 5 * time.Second
	again   = time.Minute
)

// KeywordLists remembers which namespaces have a search attribute of that type. The zero value is
// ready to use.
type KeywordLists struct {
	mu    sync.Mutex
	asked map[string]answer // by namespace
}

type answer struct {
	exists bool
	at     time.Time
}

// Find returns the name if the namespace of the activity has the attribute, and else nothing. A server
// that does not let its attributes be listed is taken to have it.
func (k *KeywordLists) Find(ctx context.Context, name string) string {
	if name == "" {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	namespace := activity.GetInfo(ctx).Namespace
	known, asked := k.asked[namespace]
	if !asked || !known.exists && time.Since(known.at) > again {
		err := ask(ctx, namespace, name)
		if err != nil {
			activity.GetLogger(ctx).Warn("lockstep: workflows that wait for locks do not say so in a search attribute", "attribute", name, "error", err)
		}
		known = answer{err == nil, time.Now()}
		if k.asked == nil {
			k.asked = map[string]answer{}
		}
		k.asked[namespace] = known
	}
	if !known.exists {
		return ""
	}
	return name
}

func ask(ctx context.Context, namespace, name string) error {
	c := activity.GetClient(ctx)
	if !openrun.Connects(c) { // a test environment takes any
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	var (
		unimplemented *serviceerror.Unimplemented
		denied        *serviceerror.PermissionDenied
	)
	switch is := found.GetCustomAttributes()[name]; {
	case errors.As(err, &unimplemented), errors.As(err, &denied):
		return nil
	case err != nil:
		return err
	case is != enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST:
		return fmt.Errorf("namespace %q has no attribute %q of type KeywordList: temporal operator search-attribute create --namespace %s --name %s --type KeywordList",
			namespace, name, namespace, name)
	}
	return nil
}
