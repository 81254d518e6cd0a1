package ui_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
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
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// kitchen is a Temporal service with workflows whose IDs begin with their state.
type kitchen struct{ inspect.Frontend }

func (kitchen) DescribeWorkflowExecution(_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	id := in.GetExecution().GetWorkflowId()
	found := &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: "run"}, Type: &commonpb.WorkflowType{Name: "Cook"}, Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
	}, PendingWorkflowTask: &workflowpb.PendingWorkflowTaskInfo{Attempt: 1}}
	switch state, _, _ := strings.Cut(id, "-"); state {
	case "paused":
		found.WorkflowExecutionInfo.Status = enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED
	case "terminated":
		found.WorkflowExecutionInfo.Status = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	case "failing":
		found.PendingActivities = []*workflowpb.PendingActivityInfo{{
			ActivityId: "17", ActivityType: &commonpb.ActivityType{Name: "Bake"}, Attempt: 7, NextAttemptScheduleTime: timestamppb.New(time.Now().Add(time.Minute)),
			LastFailure: &failurepb.Failure{Message: "the oven answers 503"},
		}}
	}
	return found, nil
}

func newKitchen(t *testing.T) *scene {
	t.Helper()
	return newScene(t, inspect.Temporal{Service: kitchen{}, Namespace: "default", NamespaceID: namespace})
}

// cook makes one attempt for a workflow, which keeps the lock if it gets it.
func (s *scene) cook(workflow string, res lockcore.Resource) {
	s.Helper()
	s.orders++
	of := wire.Run{Namespace: namespace, WorkflowID: workflow, RunID: "run"}
	req := lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: of.LockID(), Run: of.RunID, Part: of.Part(""), Order: lockcore.Order{Schedule: s.orders, Attempt: 1}}, Owner: of.Owner(),
		TTL: time.Hour, Keep: true, HoldTTL: 24 * time.Hour, Resources: []lockcore.Resource{res},
	}
	if _, err := s.Enter(s.Context(), req); err != nil {
		require.ErrorIs(s, err, lockcore.ErrBusy)
		return
	}
	require.NoError(s, s.Leave(s.Context(), lockcore.Lease{Resource: res.Name, LockID: req.LockID, Run: req.Run, Part: req.Part, Order: req.Order}))
}

// plain returns the text of a page, with single spaces.
func (s *scene) plain(address string) string {
	s.Helper()
	_, text := s.get(address)
	return strings.Join(strings.Fields(strings.ReplaceAll(tag.ReplaceAllString(text, " "), "&nbsp;", " ")), " ")
}

func TestHandler_Home_FlagsWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newKitchen(t)
		s.cook("busy", lockcore.Exclusive("table"))
		s.cook("waiter-0", lockcore.Exclusive("table"))
		_, text := s.get("/")
		require.NotContains(t, text, "alarms", "nothing needs attention")

		<-time.After(6 * time.Second)
		s.cook("paused-1", lockcore.Exclusive("oven"))
		s.cook("waiter-1", lockcore.Exclusive("oven"))
		s.cook("waiter-2", lockcore.Exclusive("oven"))
		s.cook("failing-1", lockcore.Exclusive("mixer"))
		s.cook("waiter-3", lockcore.Exclusive("mixer"))
		s.cook("terminated-1", lockcore.Exclusive("sink"))
		s.cook("left", lockcore.Exclusive("pan"))
		s.cook("right", lockcore.Exclusive("lid"))
		s.cook("left", lockcore.Exclusive("lid"))
		s.cook("right", lockcore.Exclusive("pan"))
		home := s.plain("/")
		require.Regexp(t, `deadlock .*left.*waits for.*right`, home)
		require.Contains(t, home, `1 lock or queued request of closed workflows, such as that of &#34;terminated-1&#34; on &#34;sink&#34;`)
		require.Contains(t, home, "stuck paused-1 holds oven (exclusive)")
		require.Contains(t, home, "; waiting: 2 its workflow is paused: temporal workflow unpause --workflow-id paused-1")
		require.Contains(t, home, "its activity Bake has failed (the oven answers 503), attempt 7 comes in 1 min")
		require.NotContains(t, home, "stuck busy")
		require.NotContains(t, home, "passed over")
		require.NotContains(t, s.plain("/?q=oven"), "stuck", "a search shows its result alone")

		<-time.After(5 * time.Minute)
		require.Regexp(t, `stuck waiter-1 waits for oven .* overdue: passed over until it asks again`, s.plain("/"))
	})
}

// A pool without a member in service keeps its waiters for good.
func TestHandler_Home_FlagsWaitersOfAPoolOutOfService(t *testing.T) {
	t.Parallel()
	s := newScene(t, inspect.Temporal{})
	out := lockcore.Policy{Name: "phones", Members: []string{"phone-1"}}
	require.NoError(t, s.SetPolicy(t.Context(), out))
	s.ask("holder", "", lockcore.Pool("phones"))
	s.ask("waiter", "", lockcore.Pool("phones"))
	require.NotContains(t, s.plain("/"), "stuck")
	s = newScene(t, inspect.Temporal{})
	out.Out = map[string]string{"phone-1": "display broken"}
	require.NoError(t, s.SetPolicy(t.Context(), out))
	s.ask("waiter", "", lockcore.Pool("phones"))
	require.Regexp(t, `stuck waiter waits for phones .* no member of the pool is in service`, s.plain("/"))
}

var advice = regexp.MustCompile(`<p class="advice">.*?</p>`)

// The resource page gives the advice that `lockstep why` gives about the same root blocker.
func TestHandler_Resource_GivesTheAdviceOfWhy(t *testing.T) {
	t.Parallel()
	s := newKitchen(t)
	s.cook("failing-1", lockcore.Exclusive("mixer"))
	s.cook("waiter-1", lockcore.Exclusive("mixer"))
	s.ask("a process", "", lockcore.Exclusive("oven"))
	s.cook("waiter-2", lockcore.Exclusive("oven"))
	s.cook("paused-1", lockcore.Exclusive("table"))
	s.cook("middle", lockcore.Exclusive("bowl"))
	s.cook("middle", lockcore.Exclusive("table"))
	s.cook("waiter-3", lockcore.Exclusive("bowl"))
	for resource, waiter := range map[string]string{"mixer": "waiter-1", "oven": "waiter-2", "bowl": "waiter-3"} {
		_, why := s.get("/why?workflow=" + waiter)
		_, page := s.get("/resource?name=" + resource)
		require.Len(t, advice.FindAllString(why, -1), 1)
		require.Equal(t, advice.FindAllString(why, -1), advice.FindAllString(page, -1), resource)
	}
	require.Contains(t, s.plain("/resource?name=bowl"), "What its holders wait for, root blockers first paused-1 holds table")
	require.Contains(t, s.plain("/resource?name=mixer"), "It ends the lock and not the saga")
	require.Contains(t, s.plain("/why?workflow=waiter-1"), "lockstep.Parked means that its code has not run")
}

func TestHandler_Semaphore_ListsEachWaiterOnce(t *testing.T) {
	t.Parallel()
	s := newKitchen(t)
	for _, holder := range []string{"first", "second", "third"} {
		s.cook(holder, lockcore.SharedLimit("oven", 3))
	}
	s.cook("second", lockcore.Exclusive("bowl"))
	s.cook("waiter-1", lockcore.SharedLimit("oven", 3))
	s.cook("waiter-2", lockcore.SharedLimit("oven", 3))
	s.cook("waiter-3", lockcore.Exclusive("bowl"))
	waits := s.plain("/waits")
	for waiter, on := range map[string]string{"waiter-1": "oven", "waiter-2": "oven", "waiter-3": "bowl"} {
		require.Equal(t, 1, strings.Count(waits, waiter+" waits for "+on), waits)
	}
	require.Regexp(t, `second holds bowl .* waiter-3 waits for bowl`, waits)
	require.Regexp(t, `These 3 are all in the way .* holds oven .* holds oven .* holds oven .* waiter-1 waits`, waits)
	why := s.plain("/why?workflow=waiter-2")
	require.Equal(t, 2, strings.Count(why, "waiter-2 waits for oven"), "above the tree, and in it")
	require.Regexp(t, `first holds oven .* second holds oven .* third holds oven`, why)
}

func TestHandler_Policy_IsShownOnItsResources(t *testing.T) {
	t.Parallel()
	s := newScene(t, inspect.Temporal{})
	until := time.Now().Add(time.Hour)
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{Name: "partner/", Prefix: true, Limit: 5, By: "ann", Reason: "more orders", Until: until}))
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{Name: "partner/acme", Limit: 2, By: "bob", Reason: "they are slow"}))
	s.ask("holder", "", lockcore.SharedLimit("partner/other", 3))
	require.Regexp(t, `Policy partner/\* : limit 5 until `+until.UTC().Format("2006-01-02 15:04:05")+` UTC, .*by ann, on 20.* UTC: more orders`, s.plain("/resource?name=partner/other"))
	require.Regexp(t, `Policy partner/acme : limit 2, .*by bob.*: they are slow`, s.plain("/resource?name=partner/acme"), "no party holds it yet")
	require.NotContains(t, s.plain("/resource?name=unrelated"), "Policy ")
	require.Regexp(t, `partner/\* limit 5 until .* UTC 20.* UTC ann more orders`, s.plain("/policies"))
}
