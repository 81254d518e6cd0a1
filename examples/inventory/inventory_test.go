package inventory_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/examples/inventory"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// robots record the orders in the bays. The first orders wait until all bays are in use, to show that they can be.
type robots struct {
	full chan struct{}

	mu     sync.Mutex
	inBays map[string]bool
	most   int
}

func (r *robots) Pick(ctx context.Context, o inventory.Order) error {
	r.mu.Lock()
	r.inBays[o.ID] = true
	if r.most < len(r.inBays) {
		if r.most = len(r.inBays); r.most == inventory.Bays {
			close(r.full)
		}
	}
	r.mu.Unlock()
	select {
	case <-r.full:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pack is the last step in the bay, whose lock is held until the saga has ended.
func (r *robots) Pack(_ context.Context, o inventory.Order) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inBays, o.ID)
	if strings.HasSuffix(o.ID, "broken") {
		return temporal.NewNonRetryableApplicationError("it is broken", "Broken", nil)
	}
	return nil
}

func TestFulfil_MoreOrdersThanBays_StockIsRight(t *testing.T) {
	t.Parallel()
	const stock, orders, broken = 8, 14, 2
	db, queue, c := testenv.Mongo(t), testenv.TaskQueue(t), testenv.Temporal(t)
	w := &inventory.Warehouse{Stock: db.Collection("stock"), Counting: 20 * time.Millisecond}
	r := &robots{full: make(chan struct{}), inBays: map[string]bool{}}
	w.Robots = r
	_, err := w.Stock.InsertOne(t.Context(), inventory.Item{SKU: "teapot", Left: stock, Orders: map[string]int{}, Undone: map[string]bool{}})
	require.NoError(t, err)
	locker, err := lockcore.New(db.Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	sdk := sdkworker.New(c, queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}})
	inventory.Register(sdk, w)
	require.NoError(t, sdk.Start())
	t.Cleanup(sdk.Stop)

	var runs []client.WorkflowRun
	for i := range orders {
		o := inventory.Order{ID: fmt.Sprintf("order-%d", i), SKU: "teapot", Quantity: 1}
		if i < broken {
			o.ID += "-broken"
		}
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, inventory.Fulfil, o)
		require.NoError(t, err)
		runs = append(runs, run)
	}
	ends := map[string]int{}
	for _, run := range runs {
		end := "packed"
		if err := run.Get(t.Context(), nil); err != nil {
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			end = app.Type()
		}
		ends[end]++
	}
	var item inventory.Item
	require.NoError(t, w.Stock.FindOne(t.Context(), bson.D{{Key: "_id", Value: "teapot"}}).Decode(&item))
	require.Equal(t, stock, item.Left+len(item.Orders), "%v", ends)
	require.Len(t, item.Orders, ends["packed"])
	require.Equal(t, orders, ends["packed"]+ends["Broken"]+ends[inventory.FailureSoldOut])
	require.GreaterOrEqual(t, ends["packed"], stock-broken)
	require.Equal(t, inventory.Bays, r.most)
}
