package fenced

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/activities"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// Price is a document of the prices.
type Price struct {
	Product string `bson:"_id"`
	Cents   int64  `bson:"cents"`
}

// Prices has the activity.
type Prices struct {
	Coll *mongo.Collection
	// Compute may take long. attempt counts from 1.
	Compute func(ctx context.Context, attempt int32) (cents int64)
	// Wrote is called with the result of each attempt's write.
	Wrote func(attempt int32, err error)
	// Careless writes without a fence: the control.
	Careless bool
}

// Reprice computes a product's price again, one at a time for each product.
func Reprice(ctx workflow.Context, product string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 2 * time.Second})
	var prices *Prices
	return workflow.ExecuteActivity(workflows.Guard(ctx, lockcore.Exclusive(product)), prices.Set, product).Get(ctx, nil)
}

// Set computes the price and writes it. If this attempt stalls, a later one replaces it, with a greater fence. The stalled
// attempt may notice that by its context before it writes. If it does not, the fence refuses the write.
func (p *Prices) Set(ctx context.Context, product string) error {
	attempt := activity.GetInfo(ctx).Attempt
	cents := p.Compute(ctx, attempt)
	err := p.write(ctx, product, cents)
	p.Wrote(attempt, err)
	return err
}

func (p *Prices) write(ctx context.Context, product string, cents int64) error {
	leases := activities.Leases(ctx)
	if len(leases) == 0 {
		return fmt.Errorf("the price of %s is set without a lock: is the interceptor installed on this worker?", product)
	}
	// The context of a process that stalls right here has not ended yet. Therefore this write ignores it, and the fence alone
	// decides.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	id := bson.D{{Key: "_id", Value: product}}
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "cents", Value: cents}}}}
	if p.Careless {
		_, err := p.Coll.UpdateOne(ctx, id, set)
		return err
	}
	return lockcore.UpdateFenced(ctx, p.Coll, leases[0], id, set)
}
