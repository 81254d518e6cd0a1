package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

// releases is the fixture of tests in which an entry changes after release has listed it, for instance while it asks.
type releases struct {
	*locks
	site *site
	cfg  releaseConfig
}

func newReleases(t *testing.T, now bool) *releases {
	t.Helper()
	l := newSteps(t, lockcore.NewWithStore, lockcore.Store(lockcoretest.NewStore(time.Now)))
	return &releases{&locks{Steps: l}, &site{Site: inspect.Site{Locker: l}}, releaseConfig{reason: "a drill", yes: true, now: now}}
}

// listed returns the entries that release would end.
func (r *releases) listed(t *testing.T, name string) []inspect.Entry {
	t.Helper()
	entries, err := entriesOf(t.Context(), r.site, "r")
	require.NoError(t, err)
	found, err := r.cfg.named(r.site, name, "r", entries)
	require.NoError(t, err)
	return found
}

// end ends what was listed, and returns the number of entries that it ended.
func (r *releases) end(t *testing.T, listed []inspect.Entry) (int, error) {
	t.Helper()
	var log bytes.Buffer
	ended, err := r.cfg.endAll(t.Context(), streams{err: &log}, r.site, listed)
	require.Equal(t, len(ended), bytes.Count(log.Bytes(), []byte("ended by force")), "only what was ended is in the log")
	return len(ended), err
}

// change changes an entry between the list of release and its end.
type change struct {
	// now is release's flag --now, and party the name that it was given.
	now   bool
	party string
	// before makes the locks that are listed, and returns the holder's.
	before func(*testing.T, *releases) lockcore.Lease
	// change changes them, and want is what release then reports.
	change func(t *testing.T, r *releases, holder lockcore.Lease)
	want   string
}

var changes = map[string]change{
	"waiter became the holder":                   {party: "waiter", before: waits, change: waiterGetsIt, want: "Now waiter holds r (exclusive)"},
	"unhold: the waiting hold became the holder": {now: true, party: inspect.Maintenance, before: maintenanceWaits, change: maintenanceGetsIt, want: "Now maintenance holds r (exclusive)"},
	"waiter has left":                            {party: "waiter", before: waits, change: waiterLeaves, want: `"waiter" has left "r"`},
	"holder has left":                            {party: "holder", before: holds, change: holderLeaves, want: `"holder" has left "r"`},
	"holder has a later hold":                    {party: "holder", before: holds, change: holderComesAgain, want: "Now holder holds r (exclusive)"},
	"part that was cut off has left":             {now: true, party: "holder", before: isCutOff, change: holderLeaves, want: `"holder" has left "r"`},
}

// Release ends only the entry that it has listed, and fails if that entry has gone.
func TestRelease_EntryChangedSinceListed_Fails(t *testing.T) {
	t.Parallel()
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReleases(t, c.now)
			holder := c.before(t, r)
			listed := r.listed(t, c.party)
			c.change(t, r, holder)
			held := r.states(t, "r", "")
			ended, err := r.end(t, listed)
			require.Zero(t, ended)
			require.ErrorContains(t, err, "nothing was ended: ")
			require.ErrorContains(t, err, c.want)
			require.Equal(t, held, r.states(t, "r", ""), "it is as it was")
		})
	}
}

func holds(t *testing.T, r *releases) lockcore.Lease {
	t.Helper()
	return r.ask(t, "holder", "p", "r")
}

func waits(t *testing.T, r *releases) lockcore.Lease {
	t.Helper()
	holder := holds(t, r)
	require.Zero(t, r.ask(t, "waiter", "p", "r"))
	return holder
}

func isCutOff(t *testing.T, r *releases) lockcore.Lease {
	t.Helper()
	holder := holds(t, r)
	require.NoError(t, r.Revoke(t.Context(), "r", "holder", holder.FirstFence, "a drill", false))
	require.Equal(t, []lockcore.State{lockcore.StateDraining}, r.states(t, "r", "holder"))
	return holder
}

func maintenanceWaits(t *testing.T, r *releases) lockcore.Lease {
	t.Helper()
	holder := holds(t, r)
	_, err := r.Enter(t.Context(), (&holdConfig{reason: "paint"}).request("r"))
	require.ErrorIs(t, err, lockcore.ErrBusy)
	return holder
}

func holderLeaves(t *testing.T, r *releases, holder lockcore.Lease) {
	t.Helper()
	require.NoError(t, r.Leave(t.Context(), holder))
}

func holderComesAgain(t *testing.T, r *releases, holder lockcore.Lease) {
	t.Helper()
	holderLeaves(t, r, holder)
	holds(t, r)
}

func waiterLeaves(t *testing.T, r *releases, _ lockcore.Lease) {
	t.Helper()
	waiter := lockcore.Lease{Resource: "r", LockID: "waiter", Part: "p", Order: lockcore.Order{Schedule: r.orders, Attempt: 1}}
	_, err := r.LeaveQueue(t.Context(), waiter)
	require.NoError(t, err)
}

// waiterGetsIt makes the waiter take its claim up.
func waiterGetsIt(t *testing.T, r *releases, holder lockcore.Lease) {
	t.Helper()
	holderLeaves(t, r, holder)
	r.orders-- // the same request
	require.NotZero(t, r.ask(t, "waiter", "p", "r"))
}

func maintenanceGetsIt(t *testing.T, r *releases, holder lockcore.Lease) {
	t.Helper()
	holderLeaves(t, r, holder)
	for st, err := range r.Status(t.Context(), lockcore.Filter{Resource: "r"}) {
		require.NoError(t, err)
		_, err = r.Enter(t.Context(), lockcore.StepRequest{
			Caller: lockcore.Caller{LockID: st.LockID, Part: st.Part, Order: st.Order}, Resources: []lockcore.Resource{lockcore.Exclusive("r")}, TTL: lockcore.Forever, Queued: true,
		})
		require.NoError(t, err)
	}
}

func TestRelease_EntryAsListed_IsEnded(t *testing.T) {
	t.Parallel()
	ended := []lockcore.State{}
	for name, c := range map[string]struct {
		now    bool
		party  string
		before func(*testing.T, *releases) lockcore.Lease
		left   []lockcore.State
	}{
		"waiter":                {party: "waiter", before: waits, left: ended},
		"claim":                 {party: "waiter", before: hasClaim, left: ended},
		"holder":                {party: "holder", before: holds, left: []lockcore.State{lockcore.StateDraining}},
		"dead holder":           {now: true, party: "holder", before: holds, left: ended},
		"part that was cut off": {now: true, party: "holder", before: isCutOff, left: ended},
		"two parts":             {now: true, party: "holder", before: holdsTwice, left: ended},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReleases(t, c.now)
			c.before(t, r)
			listed := r.listed(t, c.party)
			ended, err := r.end(t, listed)
			require.NoError(t, err)
			require.Equal(t, 1, ended)
			require.Equal(t, c.left, r.states(t, "r", c.party))
		})
	}
}

func hasClaim(t *testing.T, r *releases) lockcore.Lease {
	t.Helper()
	holder := waits(t, r)
	holderLeaves(t, r, holder)
	return holder
}

func holdsTwice(t *testing.T, r *releases) lockcore.Lease {
	t.Helper()
	holder := holds(t, r)
	require.NotZero(t, r.ask(t, "holder", "q", "r"))
	return holder
}
