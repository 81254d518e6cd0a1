package inspect_test

import (
	"context"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/log"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is an in-memory collection of locks. holds and waits are for parties of plain Go, step and its kin for workflows.
type scene struct {
	*testing.T
	*lockcore.Steps
	orders uint32
}

func newScene(t *testing.T) *scene {
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(t.Context())) })
	return &scene{T: t, Steps: l.Steps()}
}

func (s *scene) site() *inspect.Site {
	return &inspect.Site{Locker: s.Steps, Flags: []string{"--database", "d"}}
}

// ask makes one attempt to acquire a resource, and queues if it is busy.
func (s *scene) ask(lockID string, res lockcore.Resource) error {
	s.orders++
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: lockID, Order: lockcore.Order{Schedule: s.orders, Attempt: 1}}, TTL: time.Hour, Resources: []lockcore.Resource{res}}
	_, err := s.Enter(s.Context(), req)
	return err
}

func (s *scene) holds(lockID string, res lockcore.Resource) {
	s.Helper()
	require.NoError(s, s.ask(lockID, res))
}

func (s *scene) waits(lockID string, res lockcore.Resource) {
	s.Helper()
	require.ErrorIs(s, s.ask(lockID, res), lockcore.ErrBusy)
}

// why returns the blocking trees of a party as an outline.
func (s *scene) why(name string) string {
	s.Helper()
	why, err := s.site().Why(s.Context(), name)
	require.NoError(s, err)
	require.True(s, why.Known())
	return outline(why.Roots)
}

// outline returns trees as text: an indented line for each party.
func outline(roots []*inspect.Node) string {
	var b strings.Builder
	var walk func(nodes []*inspect.Node, indent string)
	walk = func(nodes []*inspect.Node, indent string) {
		for _, n := range nodes {
			b.WriteString(indent + n.Party.Name)
			if n.Deadlock {
				b.WriteString(" in a deadlock")
			}
			if n.Wait != nil {
				b.WriteString(" for " + n.Wait.Resource)
			}
			b.WriteString("\n")
			walk(n.Waiting, indent+" ")
		}
	}
	walk(roots, "")
	return b.String()
}

func TestWhy_PlainParties_RootBlockerComesFirst(t *testing.T) {
	t.Parallel()
	x := lockcore.Exclusive
	for name, c := range map[string]struct {
		arrange func(s *scene)
		want    string
	}{
		"one holder": {func(s *scene) {
			s.holds("a", x("r"))
			s.waits("me", x("r"))
		}, "a\n me for r\n"},
		"a chain": {func(s *scene) {
			s.holds("a", x("1"))
			s.holds("b", x("2"))
			s.waits("b", x("1"))
			s.waits("me", x("2"))
		}, "a\n b for 1\n  me for 2\n"},
		"several share": {func(s *scene) {
			s.holds("a", lockcore.Shared("r"))
			s.holds("b", lockcore.Shared("r"))
			s.waits("me", x("r"))
		}, "a\n me for r\nb\n me for r\n"},
		"a semaphore that is full": {func(s *scene) {
			s.holds("a", lockcore.SharedLimit("r", 2))
			s.holds("b", lockcore.SharedLimit("r", 2))
			s.waits("me", lockcore.SharedLimit("r", 2))
		}, "a\n me for r\nb\n me for r\n"},
		"a writer ahead in the queue, which a reader blocks": {func(s *scene) {
			s.holds("reader", lockcore.Shared("r"))
			s.waits("writer", x("r"))
			s.waits("me", lockcore.Shared("r"))
		}, "reader\n writer for r\n  me for r\n"},
		"a deadlock": {func(s *scene) {
			s.holds("me", x("1"))
			s.holds("b", x("2"))
			s.waits("b", x("1"))
			s.waits("me", x("2"))
		}, "me in a deadlock\n b for 1\n  me for 2\n"},
		"two waits with the same root": {func(s *scene) {
			s.holds("a", x("1"))
			s.holds("a", x("2"))
			s.waits("me", x("1"))
			s.waits("me", x("2"))
		}, "a\n me for 1\n"},
		"it was granted the lock": {func(s *scene) {
			s.waits("me", func() lockcore.Resource { s.holds("a", x("r")); return x("r") }())
			require.NoError(s, s.Leave(s.Context(), lockcore.Lease{Resource: "r", LockID: "a", Part: "a", Order: lockcore.Order{Schedule: 1, Attempt: 1}}))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			c.arrange(s)
			require.Equal(t, c.want, s.why("me"))
		})
	}
}

func TestResources_Order_MostWaitersFirst(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, name := range []string{"cold", "cool", "hot"} {
		s.holds("a", lockcore.Exclusive(name))
	}
	s.waits("b", lockcore.Exclusive("hot"))
	s.waits("c", lockcore.Exclusive("hot"))
	s.waits("d", lockcore.Exclusive("cool"))
	var names []string
	resources, err := s.site().Resources(t.Context(), lockcore.Filter{})
	require.NoError(t, err)
	for _, r := range resources {
		names = append(names, r.Name)
	}
	require.Equal(t, []string{"hot", "cool", "cold"}, names)
	require.Len(t, resources[0].Waiters, 2)
}

func TestWhy_Maintenance_ShowsReason(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: inspect.Maintenance}, Comment: "moving house", TTL: lockcore.Forever, Resources: []lockcore.Resource{lockcore.Exclusive("r")}}
	_, err := s.TryEnter(t.Context(), req)
	require.NoError(t, err)
	s.waits("me", lockcore.Exclusive("r"))
	why, err := s.site().Why(t.Context(), "me")
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, why.Print(&b))
	require.Contains(t, b.String(), "for maintenance: moving house; it ends by lockstep unhold r --database d")
}

// A healthy saga's hold has no end to fear, and the queue of a hold for maintenance shows why it waits.
func TestPrint_KeptHoldAndMaintenance_ExplainThemselves(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.stepHolds("before", "", lockcore.Exclusive("r"))
	site := s.site()
	resources, err := site.Resources(t.Context(), lockcore.Filter{})
	require.NoError(t, err)
	forced := resources[0].Holders[0]
	require.NoError(t, s.Revoke(t.Context(), "r", forced.LockID, forced.FirstFence, "a drill (ann@host)", true))
	s.stepHolds("transfer/7", "", lockcore.Exclusive("r"))
	_, err = s.Enter(t.Context(), lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: inspect.Maintenance, Part: "p", Order: lockcore.Order{Attempt: 1}}, Owner: inspect.MaintenanceOf("r") + "paint (ann@host)",
		TTL: lockcore.Forever, Resources: []lockcore.Resource{lockcore.Exclusive("r")},
	})
	require.ErrorContains(t, err, `held by "`+ns+`/transfer%2F7" `)
	require.ErrorContains(t, err, "kept while the workflow is open")

	shown, ok, err := site.Show(t.Context(), "r")
	require.NoError(t, err)
	require.True(t, ok)
	var b strings.Builder
	require.NoError(t, shown.Print(&b))
	require.Regexp(t, `^r

  transfer/7 holds r \(exclusive\) for \S+ \S+
      run +transfer/7-1
      host +\S+
      ends +kept while the workflow is open; if no worker runs, it ends in 1 h
      step runs .*
      fence .*
      lock ID .*
      to end it .*

  maintenance waits for r \(exclusive\) for \S+ \S+, position 1
      comment +paint \(ann@host\)
      lock ID +maintenance

  before lost its lock on r at \S+ \S+ UTC, released by force: a drill \(ann@host\)
$`, b.String())
	b.Reset()
	require.NoError(t, inspect.PrintResources(&b, []inspect.Resource{shown}, 100))
	require.Regexp(t, `(?m)^r +transfer/7 +exclusive +\S+ \S+ +kept `, b.String())

	why, err := site.Why(t.Context(), "before")
	require.NoError(t, err)
	require.True(t, why.Known())
	b.Reset()
	require.NoError(t, why.Print(&b))
	require.Regexp(t, `^before holds no lock and waits for none\nbefore lost its lock on r at .* UTC, released by force: a drill \(ann@host\)\n$`, b.String())
}

// The locks of a step outside of a saga end with the step, even if it has several: only while it waits for the rest are they kept.
func TestPrint_StepWithTwoResources_IsKeptOnlyWhileItWaits(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	two := func(r *lockcore.StepRequest) {
		r.Keep, r.HoldTTL, r.TTL = true, time.Hour, 30*time.Second
		r.Resources = []lockcore.Resource{lockcore.Exclusive("r/1"), lockcore.Exclusive("r/2")}
	}
	printed := func() string {
		var b strings.Builder
		shown, ok, err := s.site().Show(t.Context(), "r/1")
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, shown.Print(&b))
		require.NoError(t, inspect.PrintResources(&b, []inspect.Resource{shown}, 100))
		return b.String()
	}
	require.NoError(t, s.step("other", "b", lockcore.Exclusive("r/2")))
	require.ErrorIs(t, s.step("me", "a", lockcore.Exclusive("r/1"), two), lockcore.ErrBusy)
	require.Regexp(t, `ends +kept while its step waits for other resources; if no worker runs, it ends in 1 h\n`, printed())
	require.Regexp(t, `(?m)^r/1 +me +exclusive +\S+ \S+ +kept `, printed())

	of := wire.Run{Namespace: ns, WorkflowID: "other", RunID: "other-1"}
	require.NoError(t, s.Leave(t.Context(), lockcore.Lease{
		Resource: "r/2", LockID: of.StepLockID("b"), Run: of.RunID, Part: of.Part("b"), Order: lockcore.Order{Schedule: s.orders - 1, Attempt: 1},
	}))
	require.NoError(t, s.step("me", "a", lockcore.Exclusive("r/1"), two))
	require.Regexp(t, `ends +in (30|29) s, unless it is renewed; `, printed())
	require.Regexp(t, `(?m)^r/1 +me +exclusive +\S+ \S+ +in (30|29) s `, printed())
	require.NotContains(t, printed(), "kept")
}

// oneWorkflow is a Temporal service with the workflow "order-1".
type oneWorkflow struct{ inspect.Frontend }

func (oneWorkflow) DescribeWorkflowExecution(
	_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if in.Execution.WorkflowId != "order-1" {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{}, nil
}

// A plain owner, and a workflow of another namespace, may have the name of a workflow.
func TestWhy_SameName_ReportsOwnLossesOnly(t *testing.T) {
	t.Parallel()
	s, x := newScene(t), lockcore.Exclusive
	site := s.site()
	site.Temporal = inspect.Temporal{Service: oneWorkflow{}, NamespaceID: ns}
	s.holds("order-1", x("a"))
	s.stepHolds("order-1", "", x("b"))
	other := wire.Run{Namespace: "7d1f8a52-0c4e-4a7d-8f1e-2b9c3d4e5f60", WorkflowID: "order-1"}
	require.NoError(t, s.step("order-1", "", x("c"), func(r *lockcore.StepRequest) { r.LockID, r.Owner = other.LockID(), other.Owner() }))
	require.NoError(t, s.step("owned", "", x("d"), func(r *lockcore.StepRequest) { r.LockID, r.Owner, r.Run = "job-7", "ann", "" }))
	resources, err := site.Resources(t.Context(), lockcore.Filter{})
	require.NoError(t, err)
	for _, r := range resources {
		h := r.Holders[0]
		require.NoError(t, s.Revoke(t.Context(), r.Name, h.LockID, h.FirstFence, "a drill", true))
	}
	require.NoError(t, s.step("owned", "", x("e"), func(r *lockcore.StepRequest) { r.LockID, r.Owner, r.Run = "job-7", "ann", "" }))
	lost := func(name string) (of []string) {
		why, err := site.Why(t.Context(), name)
		require.NoError(t, err)
		for _, l := range why.Lost {
			of = append(of, l.Resource)
		}
		return of
	}
	require.Equal(t, []string{"b"}, lost("order-1"))
	require.Equal(t, []string{"c"}, lost(other.Owner()))
	require.Equal(t, []string{"d"}, lost("ann"), "by its lock ID")
	require.Equal(t, []string{"d"}, lost("job-7"))
}

func TestWhy_CommittedAfterALoss_NamesIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	site := s.site()
	site.Temporal = inspect.Temporal{Service: oneWorkflow{}, NamespaceID: ns}
	s.stepHolds("order-1", "", lockcore.Exclusive("b"))
	resources, err := site.Resources(t.Context(), lockcore.Filter{})
	require.NoError(t, err)
	h := resources[0].Holders[0]
	require.NoError(t, s.Revoke(t.Context(), "b", h.LockID, h.FirstFence, "a drill", true))
	_, err = s.ReleaseCommitted(t.Context(), lockcore.Release{LockID: h.LockID, Run: h.Run, Resources: []string{"b"}, Order: lockcore.LastAttempt(9)})
	require.NoError(t, err)
	for name, want := range map[string]string{
		"order-1": `(?m)^saga of workflow order-1 committed although it had lost b at \S+ \S+ UTC: released by force: a drill$`, "order-2": `^order-2 holds no lock and waits for none\n   workflow  unknown\n$`,
	} {
		why, err := site.Why(t.Context(), name)
		require.NoError(t, err)
		var b strings.Builder
		require.NoError(t, why.Print(&b))
		require.Regexp(t, want, b.String())
	}
}

// refusing is a Temporal service whose client cannot send IDs that are not ASCII.
type refusing struct{ oneWorkflow }

func (r refusing) DescribeWorkflowExecution(
	ctx context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, opts ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if strings.ContainsFunc(in.Execution.WorkflowId, func(r rune) bool { return r > '~' }) {
		return nil, serviceerror.NewInternal("a header has non-printable ASCII characters")
	}
	return r.oneWorkflow.DescribeWorkflowExecution(ctx, in, opts...)
}

// One holder about which Temporal cannot be asked hides neither the others nor their waiters.
func TestWhy_QuestionIsRefused_OneRootIsUnknown(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	site := s.site()
	site.Temporal = inspect.Temporal{Service: refusing{}, NamespaceID: ns}
	s.stepHolds("Müller", "", lockcore.Shared("r"))
	s.stepHolds("order-1", "", lockcore.Shared("r"))
	s.stepWaits("writer", "", lockcore.Exclusive("r"))
	why, err := site.Why(t.Context(), "writer")
	require.NoError(t, err)
	require.Len(t, why.Roots, 2)
	for _, root := range why.Roots {
		const reason = "Temporal gave no answer about this workflow run: a header has non-printable ASCII characters"
		if root.Party.Name == "Müller" {
			require.Equal(t, inspect.Unknown, root.Doing.Status)
			require.Contains(t, root.Advice, reason)
		} else {
			require.Empty(t, root.Doing.Reason)
			require.NotContains(t, root.Advice, reason)
		}
	}
	why, err = site.Why(t.Context(), "Müller")
	require.NoError(t, err)
	require.True(t, why.Known())
	why, err = site.Why(t.Context(), "Schröder")
	require.NoError(t, err)
	require.False(t, why.Known())
	require.Equal(t, "; Temporal gave no answer about such a workflow: a header has non-printable ASCII characters", why.Temporal())

	site.Temporal.Service = unavailable{}
	_, err = site.Why(t.Context(), "writer")
	require.ErrorContains(t, err, "it is away", "this is so for all of them")
}

func TestWhy_ExpiredHold_NamesTheNextHolder(t *testing.T) {
	t.Parallel()
	clock := lockcoretest.NewClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(clock.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(t.Context())) })
	s := &scene{T: t, Steps: l.Steps()}
	s.stepHolds("late", "", lockcore.Exclusive("r"))
	clock.Advance(2 * time.Hour)
	s.stepHolds("next", "", lockcore.Exclusive("r"))
	why, err := s.site().Why(t.Context(), "late")
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, why.Print(&b))
	require.Equal(t, "late holds no lock and waits for none\nlate lost its lock on r at 2026-01-02 05:04:05 UTC, to next\n", b.String())
}

func TestEntry_End_IsQuotedForShell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ resource, lockID, want string }{
		{"a b", "it's $HOME", "lockstep\nrelease\na b\nit's $HOME\n--database\nd\n--reason\nyour reason\n"},
		{"r", "--now", "lockstep\nrelease\n--database\nd\n--reason\nyour reason\n--\nr\n--now\n"},
	} {
		s := newScene(t)
		s.holds(c.lockID, lockcore.Exclusive(c.resource))
		resources, err := s.site().Resources(t.Context(), lockcore.Filter{})
		require.NoError(t, err)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\n' "+resources[0].Holders[0].End).Output()
		require.NoError(t, err)
		require.Equal(t, c.want, string(out))
	}
}

// unavailable is a Temporal service that does not answer.
type unavailable struct{ inspect.Frontend }

func (unavailable) DescribeWorkflowExecution(
	context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewUnavailable("it is away")
}

// Without answers from Temporal, "no orphans" would be a guess.
func TestOrphans_TemporalUnavailable_Fails(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.stepHolds("w", "", lockcore.Exclusive("r"))
	site := s.site()
	site.Temporal = inspect.Temporal{Service: unavailable{}, Namespace: "default", NamespaceID: ns}
	found, err := site.Orphans(t.Context(), log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	require.ErrorContains(t, err, "temporal did not answer 1 of 1 question:")
	require.Empty(t, found)
}

func TestOwnerName_WorkflowOfSite_IsShort(t *testing.T) {
	t.Parallel()
	const here, elsewhere = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11", "7d1f8a52-0c4e-4a7d-8f1e-2b9c3d4e5f60"
	known, unknown := &inspect.Site{Temporal: inspect.Temporal{NamespaceID: here}}, &inspect.Site{}
	for owner, want := range map[string][2]string{ // for a site with a namespace, and for one without
		here + "/transfer-7":          {"transfer-7", "transfer-7"},
		here + "/transfer%2F7":        {"transfer/7", "transfer/7"},
		elsewhere + "/transfer-7":     {elsewhere + "/transfer-7", "transfer-7"},
		"billing/nightly":             {"billing/nightly", "billing/nightly"},
		"nightly":                     {"nightly", "nightly"},
		here + "/transfer-7/2/Credit": {here + "/transfer-7/2/Credit", here + "/transfer-7/2/Credit"},
	} {
		require.Equal(t, want, [2]string{known.OwnerName(owner), unknown.OwnerName(owner)}, owner)
	}
}

// printed returns what show prints of a resource, and why of a party.
func (s *scene) printed(resource, name string) (shown, why string) {
	s.Helper()
	r, _, err := s.site().Show(s.Context(), resource)
	require.NoError(s, err)
	w, err := s.site().Why(s.Context(), name)
	require.NoError(s, err)
	var a, b strings.Builder
	require.NoError(s, r.Print(&a))
	require.NoError(s, w.Print(&b))
	return a.String(), b.String()
}

// The command that ends the first attempt would end the hold of the second too.
func TestPrint_LaterAttempt_HoldsAndEarlierDrains(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := lockcore.Exclusive("r")
	s.stepHolds("trial", "", x)
	s.orders--
	require.NoError(t, s.step("trial", "", x, func(r *lockcore.StepRequest) { r.Order.Attempt = 2 }))
	s.stepWaits("me", "", x)
	shown, why := s.printed("r", "me")
	require.Regexp(t, `^r\n\n  trial holds r (?s:.*)to end it(?s:.*)\n  trial leaves r .*\n(?s:.*)ends +in 1 min at most; it was cut off and is not renewed\n`, shown)
	require.Equal(t, 1, strings.Count(shown, "to end it"))
	require.Regexp(t, `\ntrial holds r .*\n└─ me waits for r .*\n→ .*; attempt 1 was cut off and keeps others out for another 1 min at most\n$`, why)
	listed, err := s.site().Resources(t.Context(), lockcore.Filter{})
	require.NoError(t, err)
	require.Zero(t, listed[0].Others())
}

// The part that was cut off has the same lock ID as the party that waits for it.
func TestPrint_PartIsCutOff_CanBeEnded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := lockcore.Exclusive("r")
	s.stepHolds("trial", "a", x)
	require.ErrorIs(t, s.step("trial", "a", x, func(r *lockcore.StepRequest) { r.Run, r.TakeOver = "trial-2", "trial-1" }), lockcore.ErrBusy)
	shown, why := s.printed("r", "trial")
	require.Regexp(t, `to end it +lockstep release --now r \S+/trial/a --database d --reason 'your reason'\n`, shown)
	require.Regexp(t, `→ a part of it was cut off .*; if it is known to be dead: lockstep release --now r \S+/trial/a --database d --reason 'your reason'\n`, why)
}

func TestWhy_SemaphoreWithTwoHolders_ListsTheWaiterOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, name := range []string{"a", "b"} {
		s.holds(name, lockcore.SharedLimit("printer", 2))
	}
	s.waits("me", lockcore.SharedLimit("printer", 2))
	_, why := s.printed("printer", "me")
	require.Regexp(t, `\na holds printer .*\n→ it is a process on \S+, not a workflow: ask its operators what it does; if .*\n\nb holds printer .*\n└─ me waits for printer .*\n→ `, why)
	require.Equal(t, 1, strings.Count(why, "└─"))
	_, why = s.printed("printer", "a")
	require.Regexp(t, `^a waits for no lock\na holds printer .*\n→ it is a process on \S+, not a workflow: ask its operators what it does; if it is known to be dead: lockstep release --now printer a .*\n$`, why)
}

func TestWhy_MaintenanceThatWaits_IsNamed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := lockcore.Exclusive("r")
	s.holds("a", x)
	_, err := s.Enter(s.Context(), lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: inspect.Maintenance, Part: "p", Order: lockcore.Order{Attempt: 1}}, Owner: inspect.MaintenanceOf("r") + "new schema", TTL: lockcore.Forever,
		Resources: []lockcore.Resource{x}, NeverVictim: true,
	})
	require.ErrorIs(t, err, lockcore.ErrBusy)
	s.waits("me", x)
	_, why := s.printed("r", "me")
	require.Regexp(t, `^me waits for r .*, position 2; maintenance is ahead of it: new schema\n`, why)
}
