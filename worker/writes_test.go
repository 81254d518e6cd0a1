package worker_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// writes counts the commands that write the document of the account, and calls before with their number.
type writes struct {
	before func(n int)

	mu sync.Mutex
	n  int
}

func (w *writes) started(_ context.Context, e *event.CommandStartedEvent) {
	if !slices.Contains([]string{"update", "insert", "findAndModify"}, e.CommandName) || !bytes.Contains(e.Command, []byte(account.Name+"\x00")) {
		return
	}
	w.mu.Lock()
	w.n++
	n := w.n
	w.mu.Unlock()
	if w.before != nil {
		w.before(n)
	}
}

// setupCounting is setup with a Locker whose writes are counted.
func setupCounting(t *testing.T, before func(n int)) (*bundle, *writes) {
	t.Helper()
	b, w := setup(t), &writes{before: before}
	c, err := mongo.Connect(options.Client().ApplyURI(testenv.MongoURI(t)).SetMonitor(&event.CommandMonitor{Started: w.started}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Disconnect(context.WithoutCancel(t.Context()))) })
	locker, err := lockcore.New(c.Database(b.database).Collection(lockCollection), lockcore.Config{})
	require.NoError(t, err)
	b.locker = locker.Steps()
	closeAtEnd(t, b.locker)
	b.plugin = newPlugin(t, worker.Options{Locker: b.locker.Locker})
	return b, w
}

// What counts on a replica set is the number of majority writes. The fewest are those of a saga whose steps
// follow each other within 50 ms.
func TestWrites_Uncontended_AreAsFewAsDocumented(t *testing.T) {
	t.Parallel()
	saga := func(steps int) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			return saga(ctx, func(ctx workflow.Context, s *workflows.Saga) error {
				for range steps {
					if err := s.Step(workflows.Guard(ctx, account), "Look", "Undo").Get(ctx, nil); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	for name, c := range map[string]struct {
		run         func(workflow.Context) error
		least, most int
	}{
		"guard":               {func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") }, 2, 2},
		"saga of one step":    {saga(1), 2, 3},
		"saga of three steps": {saga(3), 4, 7},
		"Lock": {func(ctx workflow.Context) error {
			hold, err := workflows.Lock(ctx, locks(account))
			if err != nil {
				return err
			}
			return hold.Release(ctx)
		}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, w := setupCounting(t, nil)
			b.workflow("W", c.run)
			stopped := b.work(t, sdkworker.Options{}, map[string]any{"Undo": b.look})
			b.succeed(t, b.start(t, "W"))
			stopped.Stop() // it waits for work in the background
			t.Logf("%d writes", w.n)
			require.GreaterOrEqual(t, w.n, c.least)
			require.LessOrEqual(t, w.n, c.most)
		})
	}
}

func TestGuard_LeaveHangs_ResultIsReported(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b, w := setupCounting(t, func(n int) {
		if n > 1 {
			<-ended
		}
	})
	b.workflow("W", func(ctx workflow.Context) error { return do(workflows.Guard(ctx, account), "Look") })
	stopped := b.serve(t)
	b.succeed(t, b.start(t, "W"))
	close(ended)
	stopped.Stop()
	require.Equal(t, 2, w.n)
}
