package recipes_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/examples/recipes"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/worker"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// within bounds what a test waits for. Only failures take it.
const within = 2 * time.Minute

// site has the servers of a test, a worker, and the steps that have begun.
type site struct {
	client client.Client
	locker *lockcore.Locker
	queue  string

	mu    sync.Mutex
	began []step
	// gates keeps steps from returning, by step and ID.
	gates map[string]chan struct{}
}

// step is a call of an activity.
type step struct{ name, workflow string }

func setup(t *testing.T, configure ...func(w sdkworker.Worker)) *site {
	t.Helper()
	s := &site{client: testenv.Temporal(t), queue: testenv.TaskQueue(t), gates: map[string]chan struct{}{}}
	locker, err := lockcore.New(testenv.Mongo(t).Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	s.locker = locker
	plugin, err := worker.NewPlugin(worker.Options{Locker: locker})
	require.NoError(t, err)
	w := sdkworker.New(s.client, s.queue, sdkworker.Options{Plugins: []sdkworker.Plugin{plugin}, DeadlockDetectionTimeout: within})
	for _, fn := range []any{
		recipes.Edit, recipes.Order, recipes.Debit, recipes.CloseMonth, recipes.CallPartner, recipes.Restock, recipes.RestockByNexus, recipes.Deliver,
	} {
		w.RegisterWorkflow(fn)
	}
	w.RegisterActivity(&recipes.Work{Do: s.do})
	for _, more := range configure {
		more(w)
	}
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return s
}

// do records a step, and waits for its gate if it has one.
func (s *site) do(ctx context.Context, name, id string) error {
	name += " " + id
	s.mu.Lock()
	s.began = append(s.began, step{name, activity.GetInfo(ctx).WorkflowExecution.ID})
	gate := s.gates[name]
	s.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hold keeps a step from returning until the returned function is called.
func (s *site) hold(name string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gates[name] = gate
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.gates, name)
		close(gate)
	}
}

// steps returns the steps that have begun, of one workflow, or of all.
func (s *site) steps(of client.WorkflowRun) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.began {
		if of == nil || b.workflow == of.GetID() {
			names = append(names, b.name)
		}
	}
	return names
}

func (s *site) untilBegan(t *testing.T, name string, of client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(s.steps(of), name) }, within, 5*time.Millisecond, "%s begins", name)
}

// waiting returns the workflow IDs in the queue of a resource, in its order.
func (s *site) waiting(t *testing.T, resource string) (workflows []string) {
	t.Helper()
	for w, err := range s.locker.Status(t.Context(), lockcore.Filter{Resource: resource, States: []lockcore.State{lockcore.StateWaiting}}) {
		require.NoError(t, err)
		_, workflowID, _ := strings.Cut(w.Owner, "/")
		workflows = append(workflows, workflowID)
	}
	return workflows
}

func (s *site) untilWaiting(t *testing.T, resource string, waiters int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.waiting(t, resource)) == waiters }, within, 20*time.Millisecond, "%d wait for %s", waiters, resource)
}

func (s *site) start(t *testing.T, workflow any, args ...any) client.WorkflowRun {
	t.Helper()
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: s.queue}, workflow, args...)
	require.NoError(t, err)
	return run
}

func end(t *testing.T, runs ...client.WorkflowRun) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for _, run := range runs {
		require.NoError(t, run.Get(ctx, nil))
	}
}

func TestOpen_DocumentInUse_Answers409(t *testing.T) {
	t.Parallel()
	s := setup(t)
	server := &recipes.Server{Client: s.client, TaskQueue: s.queue}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /documents/{document}", server.Open)
	open := func(document string) (status int, body string) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/documents/"+document, http.NoBody))
		return answer.Code, answer.Body.String()
	}
	save := func(workflowID string) {
		require.NoError(t, s.client.SignalWorkflow(t.Context(), workflowID, "", "save", nil))
		end(t, s.client.GetWorkflow(t.Context(), workflowID, ""))
	}

	status, first := open("plan")
	require.Equal(t, http.StatusOK, status, first)
	status, body := open("plan")
	require.Equal(t, http.StatusConflict, status, body)
	require.Empty(t, s.waiting(t, "document/plan"), "a refused request leaves no waiter")
	status, other := open("budget")
	require.Equal(t, http.StatusOK, status, other)
	save(other)

	save(first)
	require.Eventually(t, func() bool {
		status, body = open("plan")
		return status == http.StatusOK
	}, within, 20*time.Millisecond, "the lock is released after the run has ended")
	save(body)
}

func TestOrder_SagaAndStep_KeepTheirLocksForAsLong(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ship := s.hold("Ship ada")
	first := s.start(t, recipes.Order, "ada")
	s.untilBegan(t, "Ship ada", first)
	end(t, s.start(t, recipes.Order, "ben")) // the printer is free
	second := s.start(t, recipes.Order, "ada")
	s.untilWaiting(t, "account/ada", 1)
	require.Empty(t, s.steps(second), "the account is not")
	ship()
	end(t, first, second)
}

func TestDebit_AccountsOfOneTenant_RunTogether(t *testing.T) {
	t.Parallel()
	s := setup(t)
	charge := s.hold("Charge ada")
	ada := s.start(t, recipes.Debit, "7", "ada")
	s.untilBegan(t, "Charge ada", ada)
	end(t, s.start(t, recipes.Debit, "7", "ben"))
	month := s.start(t, recipes.CloseMonth, "7")
	s.untilWaiting(t, "tenant/7", 1)
	require.Empty(t, s.steps(month))
	late := s.start(t, recipes.Debit, "7", "cleo")
	s.untilWaiting(t, "tenant/7", 2)
	require.Empty(t, s.steps(late), "behind the one that closes the month")
	charge()
	end(t, ada, month, late)
}

func TestStartUrgent_QueueOfAnAccount_IsFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, s.locker.EnablePriorities(t.Context(), "ann", "urgent orders"))
	ship := s.hold("Ship ada")
	holder := s.start(t, recipes.Order, "ada")
	s.untilBegan(t, "Ship ada", holder)
	ordinary := s.start(t, recipes.Order, "ada")
	s.untilWaiting(t, "account/ada", 1)
	urgent, err := recipes.StartUrgent(t.Context(), s.client, s.queue, "ada")
	require.NoError(t, err)
	s.untilWaiting(t, "account/ada", 2)
	require.Equal(t, []string{urgent.GetID(), ordinary.GetID()}, s.waiting(t, "account/ada"))
	ship()
	end(t, holder, urgent, ordinary)
}

func TestThrottle_WhileStepsRun_BoundsTheNext(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.NoError(t, recipes.Throttle(t.Context(), s.locker, 1))
	charge := s.hold("Charge ada")
	ada := s.start(t, recipes.CallPartner, "ada")
	s.untilBegan(t, "Charge ada", ada)
	ben := s.start(t, recipes.CallPartner, "ben")
	s.untilWaiting(t, "partner/bank", 1)
	require.Empty(t, s.steps(ben))
	require.NoError(t, recipes.Throttle(t.Context(), s.locker, 2))
	end(t, ben)
	charge()
	end(t, ada)
}

func TestPreempt_HolderOfAnAccount_IsUndoneBeforeTheNext(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ship := s.hold("Ship ada")
	holder := s.start(t, recipes.Order, "ada")
	s.untilBegan(t, "Ship ada", holder)
	next := s.start(t, recipes.Order, "ada")
	s.untilWaiting(t, "account/ada", 1)
	require.NoError(t, recipes.Preempt(t.Context(), s.client, s.locker, "account/ada"))
	ship()
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, holder.Get(t.Context(), nil), &cancelled)
	end(t, next)
	require.Equal(t, []string{"Charge ada", "Print ada", "Ship ada", "Refund ada"}, s.steps(holder))
	require.Equal(t, []string{
		"Charge ada", "Print ada", "Ship ada", "Refund ada",
		"Charge ada", "Print ada", "Ship ada",
	}, s.steps(nil))
}

func TestRestock_ChildRuns_ArticleIsLocked(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.requireLockedDuringCall(t, func() client.WorkflowRun { return s.start(t, recipes.Restock, "kettle") })
}

func TestRestockByNexus_OperationRuns_ArticleIsLocked(t *testing.T) {
	t.Parallel()
	s := setup(t, func(w sdkworker.Worker) {
		carrier, err := recipes.Carrier()
		require.NoError(t, err)
		w.RegisterNexusService(carrier)
	})
	endpoint := strings.ReplaceAll(s.queue, "_", "-")
	made, err := s.client.OperatorService().CreateNexusEndpoint(t.Context(), &operatorservice.CreateNexusEndpointRequest{Spec: &nexuspb.EndpointSpec{
		Name: endpoint,
		Target: &nexuspb.EndpointTarget{Variant: &nexuspb.EndpointTarget_Worker_{
			Worker: &nexuspb.EndpointTarget_Worker{Namespace: client.DefaultNamespace, TaskQueue: s.queue},
		}},
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := s.client.OperatorService().DeleteNexusEndpoint(context.WithoutCancel(t.Context()), &operatorservice.DeleteNexusEndpointRequest{
			Id: made.GetEndpoint().GetId(), Version: made.GetEndpoint().GetVersion(),
		})
		require.NoError(t, err)
	})
	s.requireLockedDuringCall(t, func() client.WorkflowRun { return s.start(t, recipes.RestockByNexus, endpoint, "kettle") })
}

// requireLockedDuringCall requires that a second workflow waits while the call of the first runs, and calls after it.
func (s *site) requireLockedDuringCall(t *testing.T, start func() client.WorkflowRun) {
	t.Helper()
	ship := s.hold("Ship kettle")
	first := start()
	s.untilBegan(t, "Ship kettle", nil)
	second := start()
	s.untilWaiting(t, "stock/kettle", 1)
	require.Equal(t, []string{"Ship kettle"}, s.steps(nil))
	ship()
	end(t, first, second)
	require.Equal(t, []string{"Ship kettle", "Ship kettle"}, s.steps(nil))
}
