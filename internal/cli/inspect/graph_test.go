package inspect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const ns = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11"

// step asks as a step of a workflow does: in scope saga, or if it has a name in scope step.
func (s *scene) step(workflow, step string, res lockcore.Resource, change ...func(*party.Request)) error {
	s.orders++
	of := wire.Run{Namespace: ns, WorkflowID: workflow, RunID: workflow + "-1"}
	req := party.Request{
		LockID: of.LockID(), Owner: of.Owner(), Run: of.RunID, Part: of.Part(step), Order: party.Order{Schedule: s.orders, Attempt: 1},
		TTL: time.Minute, Persist: true, HoldTTL: time.Hour, Resources: []lockcore.Resource{res},
	}
	if step != "" {
		req.LockID, req.Within, req.Persist, req.HoldTTL = of.StepLockID(step), of.LockID(), false, 0
	}
	for _, c := range change {
		c(&req)
	}
	_, err := s.Enter(s.Context(), req)
	return err
}

// stepEnds ends the step of scope saga that asked last: what its workflow keeps stays.
func (s *scene) stepEnds(workflow, resource string) {
	s.Helper()
	of := wire.Run{Namespace: ns, WorkflowID: workflow, RunID: workflow + "-1"}
	require.NoError(s, s.Leave(s.Context(), lockcore.Lease{
		Resource: resource, LockID: of.LockID(), Run: of.RunID, Part: of.Part(""), Order: party.Order{Schedule: s.orders, Attempt: 1},
	}))
}

func (s *scene) stepHolds(workflow, step string, res lockcore.Resource) {
	s.Helper()
	require.NoError(s, s.step(workflow, step, res))
}

func (s *scene) stepWaits(workflow, step string, res lockcore.Resource, change ...func(*party.Request)) {
	s.Helper()
	require.ErrorIs(s, s.step(workflow, step, res, change...), lockcore.ErrBusy)
}

// Only what is kept waits for its owner's other locks: a step that runs goes on, and ends.
func TestWhatKeepsAWorkflowOut(t *testing.T) {
	t.Parallel()
	x := lockcore.Exclusive
	ownedBy := func(owner string) func(*party.Request) {
		return func(r *party.Request) { r.Owner = ns + "/" + owner }
	}
	for name, c := range map[string]struct {
		stands func(s *scene)
		want   string
		// forest, if it is another, is what the page of all waits shows.
		forest string
	}{
		"a step of its own that runs is no deadlock": {func(s *scene) {
			s.stepHolds("me", "a", x("1"))
			s.stepHolds("v", "", x("2"))
			s.stepWaits("me", "b", x("2"))
			s.stepWaits("v", "", x("1"))
		}, "me\n v for 1\n  me for 2\n", ""},
		"two sagas that wait for each other are one": {func(s *scene) {
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
		"what its own workflow keeps around it is in no step's way": {func(s *scene) {
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
		"readers wait for the writer before them, and not for one another": {func(s *scene) {
			s.stepHolds("reader", "", lockcore.Shared("1"))
			s.stepWaits("writer", "", x("1"))
			s.stepWaits("other", "", lockcore.Shared("1"))
			s.stepWaits("me", "", lockcore.Shared("1"))
		}, "reader\n writer for 1\n  me for 1\n", "reader\n writer for 1\n  other for 1\n  me for 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			c.stands(s)
			require.Equal(t, c.want, s.why("me"))
			forest, err := s.site().Forest(t.Context())
			require.NoError(t, err)
			want := c.want
			if c.forest != "" {
				want = c.forest
			}
			require.ElementsMatch(t, strings.Split(want, "\n"), strings.Split(outline(forest), "\n"))
			found, err := s.Deadlocks(t.Context())
			require.NoError(t, err)
			if len(found) > 0 {
				require.Contains(t, c.want, "in a deadlock", "%v", found)
			}
		})
	}
}

// The names of other namespaces' workflows say whose they are: here they may be those of other workflows.
func TestAWorkflowOfAnotherNamespaceIsNamedInFull(t *testing.T) {
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
