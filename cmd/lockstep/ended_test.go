package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// releases is the fixture of tests in which an entry changes after release has listed it, for instance while it asks.
type releases struct {
	*locks
	site *site
	cfg  releaseConfig
}

func newReleases(t *testing.T, now bool) *releases {
	t.Helper()
	l, err := party.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return &releases{&locks{Locker: l}, &site{Site: inspect.Site{Locker: l}}, releaseConfig{reason: "a drill", yes: true, now: now}}
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

func TestRelease_EntryChangedSinceListed_Fails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now    bool
		party  string
		before func(*testing.T, *releases) lockcore.Lease
		change func(*testing.T, *releases, lockcore.Lease)
		want   string
	}{
		"waiter became the holder": {
			party: "waiter", before: waits, want: "Now waiter holds r (exclusive)",
			change: func(t *testing.T, r *releases, holder lockcore.Lease) {
				require.NoError(t, r.Leave(t.Context(), holder))
				require.NotZero(t, r.confirm(t, "waiter"))
			},
		},
		"unhold: the waiting hold became the holder": {
			now: true, party: inspect.Maintenance, want: "Now maintenance holds r (exclusive)",
			before: func(t *testing.T, r *releases) lockcore.Lease {
				holder := r.ask(t, "holder", "p", "r")
				_, err := r.Enter(t.Context(), (&holdConfig{reason: "paint"}).request("r"))
				require.ErrorIs(t, err, lockcore.ErrBusy)
				return holder
			},
			change: func(t *testing.T, r *releases, holder lockcore.Lease) {
				require.NoError(t, r.Leave(t.Context(), holder))
				for st, err := range r.Status(t.Context(), lockcore.Filter{Resource: "r"}) {
					require.NoError(t, err)
					_, err = r.Enter(t.Context(), party.Request{
						LockID: st.LockID, Part: st.Part, Order: st.Order, Resources: []lockcore.Resource{lockcore.Exclusive("r")}, TTL: lockcore.Forever, Queued: true,
					})
					require.NoError(t, err)
				}
			},
		},
		"waiter has left": {
			party: "waiter", before: waits, want: `"waiter" has left "r"`,
			change: func(t *testing.T, r *releases, _ lockcore.Lease) {
				_, err := r.LeaveQueue(t.Context(), lockcore.Lease{Resource: "r", LockID: "waiter", Part: "p", Order: party.Order{Schedule: r.orders, Attempt: 1}})
				require.NoError(t, err)
			},
		},
		"holder has left": {
			party: "holder", before: holds, want: `"holder" has left "r"`,
			change: func(t *testing.T, r *releases, holder lockcore.Lease) {
				require.NoError(t, r.Leave(t.Context(), holder))
			},
		},
		"holder has a later hold": {
			party: "holder", before: holds, want: "Now holder holds r (exclusive)",
			change: func(t *testing.T, r *releases, holder lockcore.Lease) {
				require.NoError(t, r.Leave(t.Context(), holder))
				r.ask(t, "holder", "p", "r")
			},
		},
		"part that was cut off has left": {
			now: true, party: "holder", want: `"holder" has left "r"`,
			before: func(t *testing.T, r *releases) lockcore.Lease {
				holder := r.ask(t, "holder", "p", "r")
				require.NoError(t, r.Revoke(t.Context(), "r", "holder", holder.FirstFence, "a drill", false))
				require.Equal(t, []lockcore.State{lockcore.StateDraining}, r.states(t, "r", "holder"))
				return holder
			},
			change: func(t *testing.T, r *releases, holder lockcore.Lease) {
				require.NoError(t, r.Leave(t.Context(), holder))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReleases(t, c.now)
			of := c.before(t, r)
			listed := r.listed(t, c.party)
			c.change(t, r, of)
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

// confirm makes the waiter that was asked for last take its claim up.
func (r *releases) confirm(t *testing.T, lockID string) lockcore.Lease {
	t.Helper()
	r.orders--
	return r.ask(t, lockID, "p", "r")
}

func TestRelease_EntryAsListed_IsEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now    bool
		party  string
		before func(*testing.T, *releases)
		left   []lockcore.State
	}{
		"waiter": {party: "waiter", before: func(t *testing.T, r *releases) { waits(t, r) }, left: []lockcore.State{}},
		"claim": {
			party: "waiter", left: []lockcore.State{},
			before: func(t *testing.T, r *releases) { require.NoError(t, r.Leave(t.Context(), waits(t, r))) },
		},
		"holder":      {party: "holder", before: func(t *testing.T, r *releases) { holds(t, r) }, left: []lockcore.State{lockcore.StateDraining}},
		"dead holder": {now: true, party: "holder", before: func(t *testing.T, r *releases) { holds(t, r) }, left: []lockcore.State{}},
		"part that was cut off": {
			now: true, party: "holder", left: []lockcore.State{},
			before: func(t *testing.T, r *releases) {
				require.NoError(t, r.Revoke(t.Context(), "r", "holder", holds(t, r).FirstFence, "before", false))
			},
		},
		"two parts": {
			now: true, party: "holder", left: []lockcore.State{},
			before: func(t *testing.T, r *releases) {
				holds(t, r)
				require.NotZero(t, r.ask(t, "holder", "q", "r"))
			},
		},
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
