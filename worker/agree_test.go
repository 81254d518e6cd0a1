package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/workflows"
)

// blocked is a wait and the hold that is in its way, as a blocking tree shows them.
type blocked struct {
	workflow, resource, lockID string
	fence                      int64
}

// blockedIn lists the waits for holds in blocking trees. A waiter behind another waiter is left out:
// what is in its way may be gone before the other has it.
func blockedIn(nodes []*inspect.Node) (found []blocked) {
	for _, n := range nodes {
		for _, w := range n.Waiting {
			if n.Hold != nil && n.Hold.State == lockcore.StateHolding && w.Wait.Resource == n.Hold.Resource {
				found = append(found, blocked{w.Party.Workflow, w.Wait.Resource, n.Hold.LockID, n.Hold.FirstFence})
			}
		}
		found = append(found, blockedIn(n.Waiting)...)
	}
	return found
}

// TestWhyThePageAndContentionAgree samples the blocking trees of the workflows that wait, while sagas
// move between shelves. What two samples in a row show was so between them: the report on the traces
// must say so too, and the page must name the root blocker.
func TestWhyThePageAndContentionAgree(t *testing.T) {
	t.Parallel()
	s := setScene(t)
	const shelves, sagas = 4, 12
	s.workflow("Move", func(ctx workflow.Context) error {
		return workflows.RunSaga(ctx, workflows.SagaOptions{}, func(ctx workflow.Context, _ *workflows.Saga) error {
			var i int
			if _, err := fmt.Sscanf(workflow.GetInfo(ctx).WorkflowExecution.ID, s.queue+"-%d", &i); err != nil {
				return err
			}
			first := i % (shelves - 1)
			for _, n := range []int{first, first + 1} { // in the same order, so that there is no deadlock
				if err := do(workflows.Guard(ctx, lockcore.Exclusive(fmt.Sprintf("shelf/%d", n))), "Work"); err != nil {
					return err
				}
			}
			return nil
		})
	})
	s.work(t, sdkworker.Options{}, map[string]any{"Work": func(ctx context.Context) error {
		<-time.After(200 * time.Millisecond) // the load, and nothing waits for it
		return nil
	}})
	site := inspect.Site{Locker: s.locker.Core(), Temporal: inspect.Temporal{Service: s.client.WorkflowService(), Namespace: "default", NamespaceID: namespaceID}}

	var runs []client.WorkflowRun
	for i := range sagas {
		run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: fmt.Sprintf("%s-%d", s.queue, i), TaskQueue: s.queue}, "Move")
		require.NoError(t, err)
		runs = append(runs, run)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, run := range runs {
			_ = run.Get(context.WithoutCancel(t.Context()), nil) // a victim of too many deadlocks ends otherwise
		}
	}()
	samples, named := map[blocked]time.Time{}, 0
	for going := true; going; {
		select {
		case <-ended:
			going = false
		default:
		}
		for _, run := range runs {
			first, err := site.Why(t.Context(), run.GetID())
			require.NoError(t, err)
			between := time.Now()
			shown := httptest.NewRecorder()
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/why?workflow="+url.QueryEscape(run.GetID()), http.NoBody)
			ui.Handler(ui.Options{Site: site}).ServeHTTP(shown, request) // a new one, which has listed nothing before
			second, err := site.Why(t.Context(), run.GetID())
			require.NoError(t, err)
			later := blockedIn(second.Roots)
			for _, b := range blockedIn(first.Roots) {
				if slices.Contains(later, b) {
					samples[b] = between
				}
			}
			if len(first.Roots) == 1 && len(second.Roots) == 1 && first.Roots[0].Party == second.Roots[0].Party {
				require.Contains(t, shown.Body.String(), first.Roots[0].Party.Workflow)
				named++
			}
		}
	}
	require.NotEmpty(t, samples)
	require.NotZero(t, named)

	report := s.report(t)
	for b, at := range samples {
		is := func(w contention.Wait) bool {
			byHold := func(x contention.Blocker) bool { return x.LockID == b.lockID && x.Fence == b.fence }
			return w.Workflow == b.workflow && w.Resource == b.resource && !w.Start.After(at) && !w.End.Before(at) && slices.ContainsFunc(w.Blockers, byHold)
		}
		require.True(t, slices.ContainsFunc(report.Waits, is), "at %v: %+v", at, b)
	}
}
