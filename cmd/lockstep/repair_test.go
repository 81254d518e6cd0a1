package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// startHold runs hold in the background, and returns when it waits in the queue.
func (l *locks) startHold(t *testing.T, resource string, env ...string) *process {
	t.Helper()
	p := start(t, append(servers(t), env...), "hold", resource, "--reason", "paint", "--database", l.database)
	require.Eventually(t, func() bool { return len(l.states(t, resource, inspect.Maintenance)) == 1 }, within, 20*time.Millisecond)
	return p
}

func TestHold_Maintenance_KeepsOthersOutUntilUnhold(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	require.Contains(t, d.prints(t, "hold", "door", "--reason", "new hinges"), `"door" is held for maintenance`)
	second := d.come(t, "Enter", lockcore.StateWaiting)
	require.Contains(t, d.prints(t, "why", second.GetID()), "for maintenance: new hinges")
	require.Contains(t, d.fails(t, 1, "hold", "door", "--reason", "paint"), `"door" is held for maintenance already: new hinges`)
	close(d.work)
	require.Contains(t, d.prints(t, "unhold", "door"), "ended")
	require.NoError(t, second.Get(t.Context(), nil))
	require.Contains(t, d.prints(t, "hold", "hall", "--reason", strings.Repeat("é", 240)), `"hall" is held`)
	require.Contains(t, d.fails(t, 2, "release", "hall", "maintenance", "--yes", "--reason", strings.Repeat("é", 256)), "want at most 512")
	require.Contains(t, d.fails(t, 1, "unhold", "door"), `"door" is not held for maintenance, and no lockstep hold waits for it`)
}

func TestHold_Interrupted_LeavesTheQueue(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	first := d.come(t, "Enter", lockcore.StateHolding)
	c := d.startHold(t, "door")
	require.Regexp(t, `maintenance waits for door .*\n +comment +paint \(.+@.+\)\n`, d.prints(t, "show", "door"))
	c.interrupt(t)
	require.Equal(t, 130, c.wait(t), &c.stderr)
	require.Contains(t, c.stderr.String(), "waits for "+first.GetID()+", which holds door")
	require.Empty(t, d.states(t, "door", inspect.Maintenance))

	require.Contains(t, d.fails(t, 1, "hold", "door", "--reason", "paint", "--wait", "1s"), "it was not free within 1s")
	require.Empty(t, d.states(t, "door", inspect.Maintenance))
	close(d.work)
	require.NoError(t, first.Get(t.Context(), nil))
}

func TestHold_EndedWhileWaiting_Fails(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "holder", "p", "r")
	waits := l.startHold(t, "r")
	require.Contains(t, l.prints(t, "unhold", "r"), "ended\n")
	require.Equal(t, 1, waits.wait(t))
	require.Contains(t, waits.stderr.String(), "the hold was ended while it still waited")
	require.Empty(t, l.states(t, "r", inspect.Maintenance))
}

func TestHold_AnotherWaits_IsRefused(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	first := l.ask(t, "holder", "p", "r")
	waits := l.startHold(t, "r")
	require.Contains(t, l.fails(t, 1, "hold", "r", "--reason", "new hinges"), `another lockstep hold waits for "r" already`)
	require.NoError(t, l.Leave(t.Context(), first))
	require.Zero(t, waits.wait(t), &waits.stderr)
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, l.states(t, "r", inspect.Maintenance))
}

// Two commands that began at the same time did not see each other.
func TestHold_JoinsAnother_LeavesIt(t *testing.T) {
	t.Parallel()
	l := newSteps(t, lockcore.NewWithStore, lockcore.Store(lockcoretest.NewStore(time.Now)))
	at := &site{Site: inspect.Site{Locker: l}}
	one, other := holdConfig{reason: "paint"}, holdConfig{reason: "new hinges"}
	require.NoError(t, one.queue(t.Context(), at, one.request("r")))
	require.ErrorContains(t, other.queue(t.Context(), at, other.request("r")), `"r" is held for maintenance already`)
	for st, err := range l.Status(t.Context(), lockcore.Filter{}) {
		require.NoError(t, err)
		require.Contains(t, st.Comment, "paint")
		require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: st.LockID, Resources: []string{"r"}, FirstFence: st.FirstFence, Force: true, Now: true, Reason: "unhold"}))
	}
	_, err := l.TryEnter(t.Context(), lockcore.StepRequest{Caller: lockcore.Caller{LockID: "next"}, Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
	require.NoError(t, err, "the refused command keeps no party out")
}

func TestHold_TwoResources_MakesNoDeadlock(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	_, _, stderr := l.lockstep(t, "hold", "1", "--reason", "paint")
	require.Empty(t, stderr)
	l.ask(t, "saga", "p", "2")
	l.ask(t, "saga", "p", "1")
	waits := l.startHold(t, "2")
	found, err := l.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	waits.interrupt(t)
	require.Equal(t, 130, waits.wait(t), &waits.stderr)
	require.NotContains(t, waits.stderr.String(), "it may still be in the queue")
}

// A party may have the owner or the workflow ID "maintenance". unhold asks nothing, so it must not end what hold did not begin.
func TestUnhold_PartyNamedMaintenance_Stays(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: "nightly"}, Owner: inspect.Maintenance}, lockcore.Exclusive("owner"))
	of := wire.Run{Namespace: "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11", WorkflowID: inspect.Maintenance}
	l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: of.Owner(), Run: "run"}}, lockcore.Exclusive("workflow"))
	for _, resource := range []string{"owner", "workflow"} {
		require.Contains(t, l.fails(t, 1, "unhold", resource), "is not held for maintenance, and no lockstep hold waits for it")
		require.Equal(t, []lockcore.State{lockcore.StateHolding}, l.states(t, resource, ""))
	}
	require.Contains(t, l.prints(t, "release", "owner", inspect.Maintenance, "--reason", "a drill", "--yes", "--now"), "ended", "release takes a name")
}

func TestRelease_QueuedRequest_IsWithdrawn(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "holder", "p", "r")
	l.ask(t, "waiter", "p", "r")
	require.Contains(t, l.prints(t, "release", "r", "waiter", "--reason", "a drill", "--yes"),
		"ended; it is no longer in the queue. It gets no reason, and if it is a workflow, it may queue again at the end\n")
	require.Empty(t, l.states(t, "r", "waiter"))
	require.NotContains(t, l.prints(t, "release", "r", "holder", "--reason", "a drill", "--yes"), "queue")
	_, help, _ := lockstep(t, nil, "release", "--help")
	require.Contains(t, strings.ReplaceAll(help, "\n", " "), "it may queue again at the end")
}

// The trace of the holder shows who ended its hold, and why.
func TestRelease_Endpoint_GetsTheSpanOfTheHold(t *testing.T) {
	t.Parallel()
	endpoint, sent := collectExports(t)
	l := newLocks(t)
	l.ask(t, "holder", "p", "r")
	env := append(servers(t), "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint)
	code, _, stderr := lockstep(t, env, "release", "r", "holder", "--reason", "ticket 4711", "--yes", "--database", l.database)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?s)lock\.hold.*revoked.*ticket 4711 \(.+@.+\)`, sent.String())

	// The environment is that of a worker with another exporter.
	l.ask(t, "other", "p", "r")
	code, out, stderr := lockstep(t, append(env, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"), "release", "r", "other", "--reason", "x", "--yes", "--now", "--database", l.database)
	require.Zero(t, code, stderr)
	require.Contains(t, out, "ended")
	require.Contains(t, stderr, "no span is sent: OTEL_EXPORTER_OTLP_PROTOCOL")
}

// ps, show and why print names, which are what an operator has at hand.
func TestRelease_Name_EndsTheOnlyPartyOfThatName(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	ask := func(lockID, owner string, of lockcore.Resource) {
		l.enter(t, lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID, Part: "p"}, Owner: owner}, of)
	}
	release := func(name string, flags ...string) []string {
		return append([]string{"release", "r", name, "--reason", "a drill", "--yes"}, flags...)
	}
	ask("a/1", "ann", lockcore.Shared("r"))
	ask("a/2", "ann", lockcore.Shared("r"))
	ask("ann", "zoe", lockcore.Shared("r"))
	ask("b/1", "ben", lockcore.Exclusive("r"))
	require.Regexp(t, `^lockstep: nothing was ended: "ann" has several lock IDs on "r"; name one of them, or a hold's --fence: a/1 holds r \(shared\) for .*; a/2 holds r \(shared\) for .*; ann holds r \(shared\) for .*
$`, l.fails(t, 1, release("ann")...))
	const works = `ended\n%s on \S+ may still work under it: it learns of the release at its next renewal, in 20 min at most, .* %s; only fencing tokens refuse what it writes .*\n`
	dead := func(name string) string { return fmt.Sprintf(works, name, "Others do not wait for that") }
	require.Regexp(t, dead("zoe")+`ben waits for r`, l.prints(t, release("zoe", "--now")...))
	require.Regexp(t, dead("ann")+`ben waits for r \(exclusive\) for .*, position 1\n$`, l.prints(t, release("a/1", "--now")...))
	require.Regexp(t, dead("ann")+`ben was granted r \(exclusive\) .* ago, and has not confirmed it yet\n$`, l.prints(t, release("ann", "--now")...))
	ask("c/1", "cleo", lockcore.Exclusive("r"))
	require.Contains(t, l.prints(t, release("cleo")...), "ended; it is no longer in the queue.")
	ask("b/1", "ben", lockcore.Exclusive("r"))
	require.Regexp(t, fmt.Sprintf(works, "ben", "Others wait until it has left")+`ben leaves r \(exclusive\), draining for .* more\n$`, l.prints(t, release("ben")...))
	require.Contains(t, l.fails(t, 1, release("ben")...), `nothing was ended: what "ben" held on "r" has been cut off already`)
	require.Regexp(t, `ended\n.* may still work under it: .*\nno party waits for it\n$`, l.prints(t, release("b/1", "--now")...))
	require.Contains(t, l.fails(t, 1, release("ben")...), `"ben" neither holds "r" nor waits for it`)
}

// The draining part of an earlier hold has the same lock ID.
func TestRelease_Fence_EndsThatHoldOnly(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	drains := l.ask(t, "w", "one", "r")
	require.NoError(t, l.Release(t.Context(), lockcore.Release{LockID: "w", Resources: []string{"r"}, FirstFence: drains.FirstFence, Force: true, Reason: "a drill"}))
	holds := l.ask(t, "w", "two", "r")
	require.ElementsMatch(t, []lockcore.State{lockcore.StateDraining, lockcore.StateHolding}, l.states(t, "r", "w"))

	release := []string{"release", "r", "w", "--reason", "a drill", "--now", "--yes", "--fence"}
	require.Contains(t, l.fails(t, 1, append(release, "7")...), "--fence is 7: nothing was ended")
	require.Len(t, l.states(t, "r", "w"), 2)
	require.NotContains(t, l.prints(t, append(release, fmt.Sprint(holds.FirstFence))...), fmt.Sprint(drains.FirstFence), "it shows only what it ends")
	require.Equal(t, []lockcore.State{lockcore.StateDraining}, l.states(t, "r", "w"))
}

func TestHold_InterruptedWithoutDatabase_ReportsWhatIsLeft(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "holder", "p", "r")
	wire, uri := testenv.MongoByWire(t)
	waits := l.startHold(t, "r", "LOCKSTEP_MONGODB_URI="+uri)
	wire.Cut()
	waits.interrupt(t)
	require.Equal(t, 130, waits.wait(t))
	require.Contains(t, waits.stderr.String(), `lockstep: interrupted; it may still be in the queue of "r", or hold it without end, until lockstep unhold r --database `+l.database+": ")
}
