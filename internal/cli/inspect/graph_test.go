package inspect_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const ns = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11"

// step makes an attempt as a step of a workflow does: in scope saga, or in scope step if the step has a name.
func (s *scene) step(workflow, step string, res lockcore.Resource, change ...func(*lockcore.StepRequest)) error {
	s.orders++
	of := wire.Run{Namespace: ns, WorkflowID: workflow, RunID: workflow + "-1"}
	req := lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: of.LockID(), Run: of.RunID, Part: of.Part(step), Order: lockcore.Order{Schedule: s.orders, Attempt: 1}}, Owner: of.Owner(),
		TTL: time.Minute, Keep: true, HoldTTL: time.Hour, Resources: []lockcore.Resource{res},
	}
	if step != "" {
		req.LockID, req.Within, req.Keep, req.HoldTTL = of.StepLockID(step), of.LockID(), false, 0
	}
	for _, c := range change {
		c(&req)
	}
	_, err := s.Enter(s.Context(), req)
	return err
}

// stepEnds ends the last step of scope saga. The workflow keeps its hold.
func (s *scene) stepEnds(workflow, resource string) {
	s.Helper()
	of := wire.Run{Namespace: ns, WorkflowID: workflow, RunID: workflow + "-1"}
	require.NoError(s, s.Leave(s.Context(), lockcore.Lease{
		Resource: resource, LockID: of.LockID(), Run: of.RunID, Part: of.Part(""), Order: lockcore.Order{Schedule: s.orders, Attempt: 1},
	}))
}

func (s *scene) stepHolds(workflow, step string, res lockcore.Resource) {
	s.Helper()
	require.NoError(s, s.step(workflow, step, res))
}

func (s *scene) stepWaits(workflow, step string, res lockcore.Resource, change ...func(*lockcore.StepRequest)) {
	s.Helper()
	require.ErrorIs(s, s.step(workflow, step, res, change...), lockcore.ErrBusy)
}

// Only a kept hold depends on the other waits of its owner: a running step continues, and ends.
func TestWhy_Workflows_MatchesDeadlockSearch(t *testing.T) {
	t.Parallel()
	x := lockcore.Exclusive
	ownedBy := func(owner string) func(*lockcore.StepRequest) {
		return func(r *lockcore.StepRequest) { r.Owner = ns + "/" + owner }
	}
	for name, c := range map[string]struct {
		arrange func(s *scene)
		want    string
		// forest is the outline of Forest. Defaults to want.
		forest string
	}{
		"a running step of its own is not a deadlock": {func(s *scene) {
			s.stepHolds("me", "a", x("1"))
			s.stepHolds("v", "", x("2"))
			s.stepWaits("me", "b", x("2"))
			s.stepWaits("v", "", x("1"))
		}, "me\n v for 1\n  me for 2\n", ""},
		"two sagas that wait for each other are a deadlock": {func(s *scene) {
			s.stepHolds("me", "", x("1"))
			s.stepHolds("v", "", x("2"))
			s.stepWaits("v", "", x("1"))
			s.stepWaits("me", "", x("2"))
		}, "me in a deadlock\n v for 1\n  me for 2\n", "me\n v for 1\n  me in a deadlock for 2\n"},
		"another step of the same workflow": {func(s *scene) {
			s.stepHolds("me", "a", x("1"))
			s.stepWaits("me", "b", x("1"))
		}, "me\n me for 1\n", ""},
		"a child with its parent's owner, behind its parent": {func(s *scene) {
			s.stepHolds("parent", "", x("1"))
			s.stepWaits("me", "", x("1"), ownedBy("parent"))
		}, "parent in a deadlock\n me for 1\n", "parent\n me in a deadlock for 1\n"},
		"a step of a child with its parent's owner": {func(s *scene) {
			s.stepHolds("other", "", x("1"))
			s.stepWaits("me", "a", x("1"), ownedBy("parent"))
		}, "other\n me for 1\n", ""},
		"a kept hold of its own workflow does not block a step": {func(s *scene) {
			s.stepHolds("me", "", lockcore.SharedLimit("1", 2))
			s.stepEnds("me", "1")
			s.stepHolds("other", "", lockcore.SharedLimit("1", 2))
			s.stepWaits("me", "a", x("1"))
		}, "other\n me for 1\n", ""},
		"a semaphore counts the steps of one workflow": {func(s *scene) {
			s.stepHolds("me", "a", lockcore.SharedLimit("1", 2))
			s.stepHolds("other", "b", lockcore.SharedLimit("1", 2))
			s.stepWaits("me", "c", lockcore.SharedLimit("1", 2))
		}, "me\n me for 1\nother\n me for 1\n", ""},
		"readers wait for the writer ahead, not for each other": {func(s *scene) {
			s.stepHolds("reader", "", lockcore.Shared("1"))
			s.stepWaits("writer", "", x("1"))
			s.stepWaits("other", "", lockcore.Shared("1"))
			s.stepWaits("me", "", lockcore.Shared("1"))
		}, "reader\n writer for 1\n  me for 1\n", "reader\n writer for 1\n  other for 1\n  me for 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			c.arrange(s)
			require.Equal(t, c.want, s.why("me"))
			want := cmp.Or(c.forest, c.want)
			require.ElementsMatch(t, strings.Split(want, "\n"), strings.Split(outline(s.forest()), "\n"))
			found, err := s.Deadlocks(t.Context())
			require.NoError(t, err)
			if len(found) > 0 {
				require.Contains(t, c.want, "in a deadlock", "%v", found)
			}
		})
	}
}

// A workflow ID of another namespace may also be the ID of a workflow here.
func TestPartyOf_OtherNamespace_IsNamedInFull(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.stepHolds("w", "", lockcore.Exclusive("1"))
	for here, want := range map[string]string{"": "w", ns: "w", "7d1f8a52-0c4e-4a7d-8f1e-2b9c3d4e5f60": ns + "/w"} {
		site := s.site()
		site.Temporal = inspect.Temporal{NamespaceID: here}
		found, err := site.Resources(t.Context(), lockcore.Filter{})
		require.NoError(t, err)
		require.Equal(t, want, found[0].Holders[0].Party.Name, here)
	}
}

// alone makes an attempt of an activity without a workflow.
func (s *scene) alone(id string, res lockcore.Resource) (lockID string, err error) {
	s.Helper()
	of := wire.Standalone{Namespace: ns, ActivityID: id, ActivityType: "Import", RunID: id + "-1"}
	_, err = s.Enter(s.Context(), lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: of.LockID(), Run: of.RunID, Part: of.RunID + "/rule/Import", Order: lockcore.Order{Schedule: 1, Attempt: 1}},
		TTL:    time.Minute, Resources: []lockcore.Resource{res},
	})
	return of.LockID(), err
}

// An activity without a workflow is found by its ID, its name and its lock ID.
func TestWhy_ActivityWithoutWorkflow_IsNamed(t *testing.T) {
	t.Parallel()
	s, x := newScene(t), lockcore.Exclusive("1")
	holder, err := s.alone("nightly import", x)
	require.NoError(t, err)
	waiter, err := s.alone("hourly", x)
	require.ErrorIs(t, err, lockcore.ErrBusy)
	for _, name := range []string{"hourly", "activity hourly of type Import", waiter} {
		require.Equal(t, "activity nightly import of type Import\n activity hourly of type Import for 1\n", s.why(name), name)
	}
	for here, want := range map[string][2]string{
		ns:                                     {"activity nightly import of type Import", "temporal activity describe --activity-id 'nightly import' --run-id 'nightly import-1' shows what it does"},
		"7d1f8a52-0c4e-4a7d-8f1e-2b9c3d4e5f60": {"activity nightly import of type Import in the namespace with the ID " + ns, "ask its operators"},
	} {
		site := s.site()
		site.Temporal.NamespaceID = here
		why, err := site.Why(t.Context(), waiter)
		require.NoError(t, err)
		require.Equal(t, want[0], why.Roots[0].Party.Name)
		require.Contains(t, why.Roots[0].Advice, "it is an activity without a workflow, on ")
		require.Contains(t, why.Roots[0].Advice, want[1])
	}
	shown, why := s.printed("1", "hourly")
	require.Contains(t, shown, "lockstep release 1 '"+holder+"' --database d --reason")
	require.NotContains(t, shown+why, "not a workflow")
}

// forest returns the trees of all waits.
func (s *scene) forest() []*inspect.Node {
	s.Helper()
	resources, err := s.site().Resources(s.Context(), lockcore.Filter{Contended: true})
	require.NoError(s, err)
	return s.site().Forest(resources)
}

func TestForest_ChainsAndCircle_EveryRootOnce(t *testing.T) {
	t.Parallel()
	s, x := newScene(t), lockcore.Exclusive
	s.holds("a", x("1"))
	s.holds("b", x("2"))
	s.waits("b", x("1"))
	s.waits("c", x("2"))
	s.waits("d", x("1"))
	s.holds("idle", x("3"))
	// p and q wait for each other, and r for p.
	s.holds("p", x("4"))
	s.holds("q", x("5"))
	s.waits("p", x("5"))
	s.waits("q", x("4"))
	s.waits("r", x("4"))
	lines := strings.Split(strings.TrimSpace(outline(s.forest())), "\n")
	require.Equal(t, "a", lines[0])
	require.ElementsMatch(t, []string{" b for 1", "  c for 2", " d for 1"}, lines[1:4])
	require.Equal(t, "p", lines[4], "p has the most waiters in its circle")
	require.ElementsMatch(t, []string{" q for 4", "  p in a deadlock for 5", " r for 4"}, lines[5:])
}

func TestForest_ManyWaiters_AreCounted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.holds("a", lockcore.Exclusive("r"))
	for i := range 60 {
		s.waits(fmt.Sprintf("w%02d", i), lockcore.Exclusive("r"))
	}
	found := s.forest()
	require.Len(t, found, 1)
	require.Len(t, found[0].Waiting, 50)
	require.Equal(t, 10, found[0].More)
}
