package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// shed is a collection on which parties of plain Go stand, and on which commands run.
type shed struct {
	*party.Locker
	args   []string
	orders uint32
}

func openShed(t *testing.T) *shed {
	t.Helper()
	db := testenv.Mongo(t)
	locker, err := party.New(db.Collection("locks"), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	return &shed{Locker: locker, args: []string{"--database", db.Name()}}
}

// ask asks once, and queues if the resource is busy.
func (s *shed) ask(t *testing.T, lockID, part, resource string) lockcore.Lease {
	t.Helper()
	s.orders++
	leases, err := s.Enter(t.Context(), party.Request{
		LockID: lockID, Part: part, Order: party.Order{Schedule: s.orders, Attempt: 1}, TTL: time.Hour, Resources: []lockcore.Resource{lockcore.Exclusive(resource)},
	})
	if err != nil {
		require.ErrorIs(t, err, lockcore.ErrBusy)
		return lockcore.Lease{}
	}
	return leases[0]
}

func (s *shed) lockstep(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return lockstep(t, servers(t), append(args, s.args...)...)
}

// stands lists what a lock ID has on a resource, by state.
func (s *shed) stands(t *testing.T, resource, lockID string) (found []lockcore.State) {
	t.Helper()
	for st, err := range s.Status(t.Context(), lockcore.Filter{Resource: resource, LockID: lockID}) {
		require.NoError(t, err)
		found = append(found, st.State)
	}
	return found
}

// holding runs hold in the background, and returns when it waits in the queue.
func (s *shed) holding(t *testing.T, resource string, env ...string) *background {
	t.Helper()
	c := &background{Cmd: exec.CommandContext(t.Context(), binary, append([]string{"hold", resource, "--reason", "paint"}, s.args...)...)}
	c.Env = append(append(c.Environ(), servers(t)...), env...)
	c.Stderr = &c.stderr
	require.NoError(t, c.Start())
	require.Eventually(t, func() bool { return len(s.stands(t, resource, inspect.Maintenance)) == 1 }, within, 20*time.Millisecond)
	return c
}

type background struct {
	*exec.Cmd
	stderr bytes.Buffer
}

// ends waits for the end of the command, and returns its exit status and what it complained of.
func (c *background) ends(t *testing.T) (code int, stderr string) {
	t.Helper()
	tooLong := time.AfterFunc(within, func() { _ = c.Process.Kill() })
	_ = c.Wait() // the exit status says it
	require.True(t, tooLong.Stop(), "it did not end")
	return c.ProcessState.ExitCode(), c.stderr.String()
}

func TestAHoldThatIsEndedWhileItWaitsStaysEnded(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	s.ask(t, "holder", "p", "r")
	waits := s.holding(t, "r")
	code, stdout, stderr := s.lockstep(t, "unhold", "r")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "ended\n")
	code, stderr = waits.ends(t)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "the hold was ended while it still waited")
	require.Empty(t, s.stands(t, "r", inspect.Maintenance))
}

func TestASecondHoldIsRefused(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	first := s.ask(t, "holder", "p", "r")
	waits := s.holding(t, "r")
	code, stdout, stderr := s.lockstep(t, "hold", "r", "--reason", "new hinges")
	require.Equal(t, 1, code, stdout)
	require.Contains(t, stderr, `another lockstep hold waits for "r" already`)

	require.NoError(t, s.Leave(t.Context(), first))
	code, stderr = waits.ends(t)
	require.Zero(t, code, stderr)
	require.Equal(t, []lockcore.State{lockcore.StateHolding}, s.stands(t, "r", inspect.Maintenance))
}

// Two commands that began at the same moment saw nothing of each other.
func TestAHoldThatWouldBeAnothersIsLeft(t *testing.T) {
	t.Parallel()
	l, err := party.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	one, other := holdConfig{reason: "paint"}, holdConfig{reason: "new hinges"}
	require.NoError(t, one.queue(t.Context(), l, one.request("r")))
	require.ErrorContains(t, other.queue(t.Context(), l, other.request("r")), `"r" is held for maintenance already`)
	for st, err := range l.Status(t.Context(), lockcore.Filter{}) {
		require.NoError(t, err)
		require.Contains(t, st.Comment, "paint")
		require.NoError(t, l.Release(t.Context(), party.Release{LockID: st.LockID, Resources: []string{"r"}, FirstFence: st.FirstFence, Force: true, Now: true, Reason: "unhold"}))
	}
	_, err = l.TryEnter(t.Context(), party.Request{LockID: "next", Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
	require.NoError(t, err, "no part of the one that was refused keeps others out")
}

func TestMaintenanceOfTwoResourcesMakesNoHolderAVictim(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	code, _, stderr := s.lockstep(t, "hold", "1", "--reason", "paint")
	require.Zero(t, code, stderr)
	s.ask(t, "saga", "p", "2")
	s.ask(t, "saga", "p", "1")
	waits := s.holding(t, "2")
	found, err := s.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
	require.NoError(t, waits.Process.Signal(os.Interrupt))
	code, stderr = waits.ends(t)
	require.Equal(t, 130, code, stderr)
	require.NotContains(t, stderr, "it may stand", "it has left the queue")
}

func TestTheOwnerOfAPlaceThatIsReleasedIsToldNoReason(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	s.ask(t, "holder", "p", "r")
	s.ask(t, "waiter", "p", "r")
	code, stdout, stderr := s.lockstep(t, "release", "r", "waiter", "--reason", "a drill", "--yes")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "ended; its place in the queue is gone: it is told no reason, and if it is a workflow, it may queue again at the end\n")
	require.Empty(t, s.stands(t, "r", "waiter"))
	_, stdout, _ = s.lockstep(t, "release", "r", "holder", "--reason", "a drill", "--yes")
	require.NotContains(t, stdout, "queue")
	_, help, _ := lockstep(t, nil, "release", "--help")
	require.Contains(t, strings.ReplaceAll(help, "\n", " "), "it may queue again at the end")
}

// What drains of an earlier hold has the same lock ID.
func TestReleaseByAFenceEndsThatHoldAlone(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	drains := s.ask(t, "w", "one", "r")
	require.NoError(t, s.Release(t.Context(), party.Release{LockID: "w", Resources: []string{"r"}, FirstFence: drains.FirstFence, Force: true, Reason: "a drill"}))
	holds := s.ask(t, "w", "two", "r")
	require.ElementsMatch(t, []lockcore.State{lockcore.StateDraining, lockcore.StateHolding}, s.stands(t, "r", "w"))

	release := []string{"release", "r", "w", "--reason", "a drill", "--now", "--yes", "--fence"}
	code, stdout, stderr := s.lockstep(t, append(release, "7")...)
	require.Equal(t, 1, code, stdout)
	require.Contains(t, stderr, "--fence is 7: nothing was ended")
	require.Len(t, s.stands(t, "r", "w"), 2)
	code, stdout, stderr = s.lockstep(t, append(release, fmt.Sprint(holds.FirstFence))...)
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, fmt.Sprint(drains.FirstFence), "it shows what it ends")
	require.Equal(t, []lockcore.State{lockcore.StateDraining}, s.stands(t, "r", "w"))
}

func TestWhatAnInterruptedHoldMayHaveLeftIsSaid(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	s.ask(t, "holder", "p", "r")
	wire, uri := testenv.MongoByWire(t)
	waits := s.holding(t, "r", "LOCKSTEP_MONGODB_URI="+uri)
	wire.Cut()
	require.NoError(t, waits.Process.Signal(os.Interrupt))
	code, stderr := waits.ends(t)
	require.Equal(t, 130, code)
	require.Contains(t, stderr, `lockstep: interrupted; it may stand in the queue of "r", or hold it without end, until lockstep unhold "r": `)
}

func TestTheEndOfTheWaitIsSaidInOurWords(t *testing.T) {
	t.Parallel()
	l, err := party.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	_, err = l.TryEnter(t.Context(), party.Request{LockID: "holder", Resources: []lockcore.Resource{lockcore.Exclusive("r")}})
	require.NoError(t, err)
	cfg := holdConfig{reason: "paint", wait: 50 * time.Millisecond}
	require.EqualError(t, cfg.queue(t.Context(), l, cfg.request("r")), "it was not free within 50ms")
}

// A program does not see that a list was cut.
func TestJSONListsAllResources(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	req := party.Request{LockID: "holder", TTL: time.Hour}
	for i := range 60 {
		req.Resources = append(req.Resources, lockcore.Exclusive(fmt.Sprintf("item/%02d", i)))
	}
	_, err := s.TryEnter(t.Context(), req)
	require.NoError(t, err)
	for want, args := range map[int][]string{60: {"ps", "--json"}, 50: {"ps", "--json", "--most", "50"}} {
		code, stdout, stderr := s.lockstep(t, args...)
		require.Zero(t, code, stderr)
		var listed []inspect.Resource
		require.NoError(t, json.Unmarshal([]byte(stdout), &listed))
		require.Len(t, listed, want)
	}
	_, stdout, _ := s.lockstep(t, "ps")
	require.Contains(t, stdout, "and 10 more; see --most")
}
