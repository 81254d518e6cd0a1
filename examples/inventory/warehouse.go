package inventory

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.temporal.io/sdk/temporal"
)

// FailureSoldOut is the failure type of an order that exceeds the stock.
const FailureSoldOut = "inventory.SoldOut"

// Robots do the work in the bays.
type Robots interface {
	Pick(ctx context.Context, o Order) error
	Pack(ctx context.Context, o Order) error
}

// Item is a document of the stock.
type Item struct {
	SKU  string `bson:"_id"`
	Left int    `bson:"left"`
	// Orders has the reserved quantities, so that a repeated step reserves once. Undone has the orders that were put back, so
	// that a late step reserves nothing.
	Orders map[string]int  `bson:"orders"`
	Undone map[string]bool `bson:"undone"`
}

// Warehouse has the activities.
type Warehouse struct {
	Stock  *mongo.Collection
	Robots Robots
	// Counting is the time that it takes to compute the rest.
	Counting time.Duration
}

// Reserve takes an order out of the stock. It reads, computes and writes, as most code does. The lock prevents two orders
// from doing that at the same time.
func (w *Warehouse) Reserve(ctx context.Context, o Order) error {
	return w.change(ctx, o.SKU, func(item *Item) error {
		switch _, reserved := item.Orders[o.ID]; {
		case reserved || item.Undone[o.ID]:
			return nil
		case item.Left < o.Quantity:
			return temporal.NewNonRetryableApplicationError(fmt.Sprintf("%d of %s are left, and %d are wanted", item.Left, o.SKU, o.Quantity), FailureSoldOut, nil)
		}
		item.Left -= o.Quantity
		item.Orders[o.ID] = o.Quantity
		return nil
	})
}

// PutBack undoes Reserve, if it reserved anything.
func (w *Warehouse) PutBack(ctx context.Context, o Order) error {
	return w.change(ctx, o.SKU, func(item *Item) error {
		item.Left += item.Orders[o.ID]
		delete(item.Orders, o.ID)
		item.Undone[o.ID] = true
		return nil
	})
}

// Pick fetches the items of an order into its bay.
func (w *Warehouse) Pick(ctx context.Context, o Order) error { return w.Robots.Pick(ctx, o) }

// Pack packs them.
func (w *Warehouse) Pack(ctx context.Context, o Order) error { return w.Robots.Pack(ctx, o) }

func (w *Warehouse) change(ctx context.Context, sku string, do func(*Item) error) error {
	var item Item
	id := bson.D{{Key: "_id", Value: sku}}
	if err := w.Stock.FindOne(ctx, id).Decode(&item); err != nil {
		return fmt.Errorf("read the stock of %s: %w", sku, err)
	}
	if err := do(&item); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(w.Counting):
	}
	if _, err := w.Stock.ReplaceOne(ctx, id, item); err != nil {
		return fmt.Errorf("write the stock of %s: %w", sku, err)
	}
	return nil
}
