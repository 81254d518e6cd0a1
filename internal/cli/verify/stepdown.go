package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// checkStepDown refuses --step-down where no primary can step down.
func checkStepDown(o Options, s Server) error {
	// A direct connection stays at the member that steps down.
	if !o.StepDown || s.Topology == replicaSet && s.Members > 1 && !direct(o.URI) {
		return nil
	}
	return fmt.Errorf("%w: --step-down needs a replica set of several members, and a connection to it, without directConnection=true: the server is %s", ErrUsage, s)
}

// direct reports whether a URI names one member, and not its set.
func direct(uri string) bool {
	cs, err := connstring.Parse(uri)
	return err == nil && cs.DirectConnection
}

// stepDown is a check: the primary steps down while clients take, renew and leave locks.
func (r *run) stepDown(ctx context.Context, seed uint64) (outcome, error) {
	clients, stop, err := r.clients(ctx, r.o.Clients, seed)
	if err != nil {
		return outcome{}, err
	}
	defer stop()
	var took string
	admin := r.coll.Database().Client().Database("admin")
	history, err := r.play(ctx, clients, seed, plan{
		name: "step-down", resources: 3, each: 150, within: 30 * time.Second, enough: 2 * time.Minute, disturbed: true,
		midway: func(ctx context.Context) (err error) {
			took, err = stepDownPrimary(ctx, mongoAdmin{admin})
			return err
		},
	})
	if err != nil {
		return outcome{count: len(history)}, err
	}
	found := judge(history)
	found.note += took
	return r.afterwards(ctx, clients, seed, "after step-down", found)
}

// admin sends commands to the primary.
type admin interface {
	run(ctx context.Context, command bson.D) error
	hello(ctx context.Context) (hello, error)
}

type mongoAdmin struct{ *mongo.Database }

func (a mongoAdmin) run(ctx context.Context, command bson.D) error {
	return a.RunCommand(ctx, command).Err()
}

func (a mongoAdmin) hello(ctx context.Context) (h hello, err error) {
	err = a.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	return h, err
}

const (
	// staysDown is the time for which the old primary does not become primary again, in seconds.
	staysDown = 20
	// electing bounds the time until another member is primary.
	electing = time.Minute
)

// stepDownPrimary makes the primary step down, and waits until another member is primary. A server that closes
// the connection has obeyed, or will be found to be primary still.
func stepDownPrimary(ctx context.Context, a admin) (note string, err error) {
	before, err := a.hello(ctx)
	if err != nil {
		return "", err
	}
	began := time.Now()
	err = a.run(ctx, bson.D{{Key: "replSetStepDown", Value: staysDown}, {Key: "secondaryCatchUpPeriodSecs", Value: 10}})
	if err != nil && !mongo.IsNetworkError(err) {
		var refused mongo.ServerError
		if errors.As(err, &refused) && refused.HasErrorCode(unauthorized) {
			return "", fmt.Errorf("the user may not make the primary step down, for which the role clusterManager is needed: %w", err)
		}
		return "", fmt.Errorf("make %s step down: %w", before.Primary, err)
	}
	ctx, cancel := context.WithTimeout(ctx, electing)
	defer cancel()
	for {
		now, err := a.hello(ctx)
		if err == nil && now.Primary != "" && now.Primary != before.Primary {
			return fmt.Sprintf("; %s stepped down, and %s was primary %s later", before.Primary, now.Primary, time.Since(began).Round(10*time.Millisecond)), nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("no other member was primary within %s after %s had stepped down", electing, before.Primary)
		}
		harness.Pause(ctx, 100*time.Millisecond)
	}
}
