package browser

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

const namespace = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11"

// Resources of the shop.
const (
	jacket = "stock/sku-70431-winter-jacket-blue-xl"
	boots  = "stock/sku-70877-rain-boots-green-42"
	scarf  = "stock/sku-70112-scarf-red"
	mug    = "stock/sku-20018-enamel-mug-white"
)

// shop is a site with the locks of a shop's workflows. Its clock is behind, so that holds are as old as the scene wants.
type shop struct {
	*site
	behind atomic.Int64
	queued []lockcore.StepRequest
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{}
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(func() time.Time { return time.Now().Add(-time.Duration(s.behind.Load())) }), lockcore.Config{Host: "worker-2"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(t.Context())) })
	server := httptest.NewServer(ui.Handler(ui.Options{TemporalUI: "http://127.0.0.1:8233", Site: inspect.Site{
		Locker: l.Steps(), Temporal: inspect.Temporal{Service: orders{}, Namespace: "default", NamespaceID: namespace},
	}}))
	t.Cleanup(server.Close)
	s.site = &site{tab: start(t, server.URL), Steps: l.Steps(), address: server.URL}

	x := lockcore.Exclusive
	s.at(3*time.Hour+10*time.Minute, "stocktaking-hamburg", lockcore.Shared("warehouse/hamburg"))
	s.at(65*time.Minute, "order-0987", x(mug)) // an orphan
	s.at(64*time.Minute, "restock-0031", x("supplier/nordic-outdoor"))
	s.at(12*time.Minute, "order-1042", x(jacket))
	s.at(11*time.Minute, "order-1043", x(boots))
	s.at(10*time.Minute, "order-1043", x(jacket))
	s.at(8*time.Minute, "restock-0032", x(scarf))
	s.at(7*time.Minute, "restock-0032", x(boots))
	s.at(5*time.Minute, "order-1051", x(jacket))
	s.at(4*time.Minute, "order-1057", x(scarf))
	s.at(3*time.Minute, "order-0991", x(mug))
	s.at(150*time.Second, "price-report-weekly", lockcore.Shared("warehouse/hamburg"))
	s.at(2*time.Minute, "restock-0034", x("warehouse/hamburg"))
	s.at(70*time.Second, "order-1060", x(boots))
	s.at(12*time.Second, "order-1066", x("customer/4711"))
	s.behind.Store(int64(95 * time.Minute))
	_, err = s.TryEnter(t.Context(), lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: inspect.Maintenance}, Comment: "new shelves, ticket 4711", TTL: lockcore.Forever, Resources: []lockcore.Resource{x("warehouse/bremen")},
	})
	require.NoError(t, err)
	s.behind.Store(int64(8 * time.Second))
	s.ask("nightly-import", "catalogue")
	s.ask("a worker", janitor.LockName(namespace))
	s.refresh()
	return s
}

// deadlock adds workflows that wait for each other, each for the resource that the next one keeps.
func (s *shop) deadlock(resources ...string) {
	s.t.Helper()
	workflow := func(i int) string { return fmt.Sprintf("order-1%d7%d", len(resources), i) }
	for i, r := range resources {
		s.at(time.Duration(40-i)*time.Second, workflow(i), lockcore.Exclusive(r))
	}
	for i := range resources {
		s.at(9*time.Second, workflow(i), lockcore.Exclusive(resources[(i+1)%len(resources)]))
	}
	s.refresh()
}

// at makes a saga's step ask for a resource some time ago. If it gets the lock, the step ends and its workflow keeps the lock.
func (s *shop) at(ago time.Duration, workflow string, res lockcore.Resource) {
	s.t.Helper()
	s.behind.Store(int64(ago))
	s.orders++
	of := wire.Run{Namespace: namespace, WorkflowID: workflow, RunID: runOf(workflow)}
	req := lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: of.LockID(), Run: of.RunID, Part: of.Part(fmt.Sprint(s.orders)), Order: lockcore.Order{Schedule: s.orders, Attempt: 1}}, Owner: of.Owner(),
		TTL: 24 * time.Hour, Keep: true, HoldTTL: 24 * time.Hour, Resources: []lockcore.Resource{res},
	}
	if _, err := s.Enter(s.t.Context(), req); err != nil {
		require.ErrorIs(s.t, err, lockcore.ErrBusy)
		s.queued = append(s.queued, req)
		return
	}
	require.NoError(s.t, s.Leave(s.t.Context(), lockcore.Lease{Resource: res.Name, LockID: req.LockID, Run: req.Run, Part: req.Part, Order: req.Order}))
}

// refresh sets the clock right, and makes all waiters ask again.
func (s *shop) refresh() {
	s.t.Helper()
	s.behind.Store(0)
	for _, req := range s.queued {
		_, err := s.Enter(s.t.Context(), req)
		require.ErrorIs(s.t, err, lockcore.ErrBusy)
	}
}

func runOf(workflow string) string {
	return "01a207f8-d614-79a8-b57a-" + fmt.Sprintf("%012x", len(workflow)*7919+int(workflow[len(workflow)-1]))
}

// orders is the shop's Temporal service.
type orders struct{ inspect.Frontend }

func (orders) DescribeWorkflowExecution(_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	id := in.GetExecution().GetWorkflowId()
	name := map[byte]string{'o': "OrderSaga", 'r': "Restock", 's': "Stocktaking", 'p': "PriceReport"}[id[0]]
	run := &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: runOf(id)}, Type: &commonpb.WorkflowType{Name: name},
		Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
	}, PendingWorkflowTask: &workflowpb.PendingWorkflowTaskInfo{Attempt: 1}} // so no step is known to have ended
	switch id {
	case "order-0987", "order-0991":
		run.WorkflowExecutionInfo.Status = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	case "order-1042":
		run.PendingActivities = []*workflowpb.PendingActivityInfo{{
			ActivityId: "17", ActivityType: &commonpb.ActivityType{Name: "ChargeCard"}, Attempt: 7, LastWorkerIdentity: "4711@worker-2",
			LastFailure: &failurepb.Failure{Message: "the payment provider answers 503"}, NextAttemptScheduleTime: timestamppb.New(time.Now().Add(34 * time.Second)),
		}}
	}
	return run, nil
}

func (orders) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest, ...grpc.CallOption) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{ServerVersion: "1.29.1"}, nil
}

func (orders) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest, ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{}, nil
}

func (orders) ListWorkers(context.Context, *workflowservice.ListWorkersRequest, ...grpc.CallOption) (*workflowservice.ListWorkersResponse, error) {
	return &workflowservice.ListWorkersResponse{}, nil
}
