package protocol

import (
	"context"
	"fmt"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

type clusterKey struct{}

// ContextWithCluster says in the context of one of Lockstep's own activities in which cluster's name the worker's interceptor locks.
func ContextWithCluster(ctx context.Context, cluster string) context.Context {
	return context.WithValue(ctx, clusterKey{}, cluster)
}

// CheckCluster refuses to act in the name of another cluster than the interceptor of the same worker, whose locks would not be
// found: the two were installed with options that differ. Where no interceptor said its own, nothing is known.
func CheckCluster(ctx context.Context, cluster string) error {
	theirs, ok := ctx.Value(clusterKey{}).(string)
	if !ok || theirs == "" || theirs == cluster {
		return nil
	}
	return &lockcore.InvalidError{
		Field: "worker.Options.Cluster", Value: fmt.Sprintf("%q, given to worker.Register", cluster),
		Bound: fmt.Sprintf("that of the same worker's interceptor, %q", theirs),
	}
}
