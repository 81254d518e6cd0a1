package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// TestStore verifies the contract of the interface on both implementations.
func TestStore(t *testing.T) {
	t.Parallel()
	implementations := map[string]func(t *testing.T) store.Store{
		"Mongo":  func(t *testing.T) store.Store { return setup(t).Mongo },
		"Memory": func(*testing.T) store.Store { return store.NewMemory(time.Now) },
	}
	behaviours := map[string]func(t *testing.T, s store.Store){
		"Load_Missing_ReturnsTime":       loadMissing,
		"Load_Document_IsWhatWasStored":  loadStored,
		"Load_Result_SharesNoMemory":     loadCopies,
		"Swap_ReplacesUpToAConflict":     swapTable,
		"Swap_Several_Applies":           swapSeveral,
		"Swap_Bounds_AreRefused":         swapBounds,
		"Swap_Concurrent_OneWins":        swapConcurrent,
		"Extend_NamedEntries_AreRaised":  extendRaises,
		"Extend_Later_NeverShortens":     extendNeverShortens,
		"Extend_MakesOldSwapsFail":       extendMakesSwapsFail,
		"Extend_Missing_CountsFewer":     extendMissing,
		"Extend_SameEntryTwice_IsMerged": extendTwice,
		"Extend_ManyDocuments_InChunks":  extendMany,
		"Extend_Reserved_Yields":         extendReserved,
		"Reserve_ChangesVersion":         reserve,
		"Reserve_Reserved_Stays":         reserveReserved,
		"List_Queries":                   list,
		"List_PrefixOfLastRune":          listLastRune,
		"List_StopsEarly":                listStops,
		"Names_AreData":                  namesAreData,
		"Identify_IsStable":              identify,
		"EndedContext_IsNotSent":         endedContext,
	}
	for kind, make := range implementations {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, behaviour := range behaviours {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					behaviour(t, make(t))
				})
			}
		})
	}
}

func loadMissing(t *testing.T, s store.Store) {
	for _, read := range []func(context.Context, ...string) (store.Loaded, error){s.Load, s.LoadMajority} {
		for _, names := range [][]string{nil, {"missing"}, {"a", "b"}} {
			loaded, err := read(t.Context(), names...)
			require.NoError(t, err)
			require.Empty(t, loaded.Docs)
			require.WithinDuration(t, time.Now(), loaded.At, time.Minute)
			require.Equal(t, time.UTC, loaded.At.Location())
		}
	}
}

func loadStored(t *testing.T, s store.Store) {
	full := document("x", 3)
	renewed := at(3)
	full.Entries[0].RenewedAt = &renewed
	full.Waiters = []rules.Waiter{{Caller: rules.Caller{LockID: "w"}, Mode: "exclusive", Since: at(1), ExpiresAt: rules.Never, OverdueAt: at(2), Hold: &rules.WaitingHold{ID: "h", TTL: 5}}}
	full.Evidence = []rules.Evidence{{LockID: "e", Fence: 3, At: at(4), Reason: "expired"}}
	full.Releases = []rules.ReleaseRecord{{LockID: "o", Order: 4}}
	full.Forced = full.Evidence
	full.Missed = []rules.Missed{{LockID: "m", Run: "run", Order: 6, Fence: 3, At: at(4), By: "other", UpTo: 7, ReleasedAt: at(5)}}
	full.Bars = []rules.Bar{{LockID: "b", Saga: "s", Order: 5}}
	full.Attn = []string{rules.StateKept, "exclusive"}
	full.Reserved = &rules.Reservation{By: "p", Until: at(6)}
	given := *full
	given.At = at(50) // it must not be stored, and must stay in the caller's document
	insert(t, s, &given)
	require.Equal(t, at(50), given.At)
	require.Equal(t, full, stored(t, s, "x"))

	read, err := s.LoadMajority(t.Context(), "x", "missing")
	require.NoError(t, err)
	require.Len(t, read.Docs, 1)
	require.Equal(t, read.At, read.Docs["x"].At)
	versions, err := s.Versions(t.Context(), "x", "missing")
	require.NoError(t, err)
	require.Equal(t, map[string]rules.Version{"x": full.Version}, versions)
	versions, err = s.Versions(t.Context())
	require.NoError(t, err)
	require.Empty(t, versions)

	// Times have milliseconds, and missing lists are empty ones.
	bare := &rules.Document{ID: "bare", Version: version(1), IdleAt: at(0).Add(1999 * time.Microsecond)}
	insert(t, s, bare)
	found := stored(t, s, "bare")
	require.Equal(t, at(0).Add(time.Millisecond), found.IdleAt)
	require.NotNil(t, found.Entries)
	require.Nil(t, bare.Entries)
}

func loadCopies(t *testing.T, s store.Store) {
	given := document("x", 1)
	insert(t, s, given)
	given.Entries[0].LockID = "changed"
	found := stored(t, s, "x")
	found.Entries[0].LockID = "changed"
	require.Equal(t, "lock-a", stored(t, s, "x").Entries[0].LockID)
}

// swapTable swaps documents of version 1, and lists the versions of the documents that exist afterwards.
func swapTable(t *testing.T, s store.Store) {
	to := func(name string, prev, next int64) store.Swap {
		swap := store.Swap{Next: document(name, next)}
		if prev > 0 {
			swap.Prev = version(prev)
		}
		return swap
	}
	otherRandom := to("x", 1, 3)
	otherRandom.Prev.R = "other"
	type versions = map[string]int64
	for name, test := range map[string]struct {
		before []string
		swaps  []store.Swap
		done   int
		after  versions
	}{
		"nothing":              {[]string{"x"}, nil, 0, versions{"x": 1}},
		"same version":         {[]string{"x", "y"}, []store.Swap{to("x", 1, 2)}, 1, versions{"x": 2, "y": 1}},
		"other number":         {[]string{"x"}, []store.Swap{to("x", 2, 3)}, 0, versions{"x": 1}},
		"other random value":   {[]string{"x"}, []store.Swap{otherRandom}, 0, versions{"x": 1}},
		"missing":              {[]string{"x"}, []store.Swap{to("y", 1, 2)}, 0, versions{"x": 1}},
		"insert":               {[]string{"x"}, []store.Swap{to("y", 0, 9)}, 1, versions{"x": 1, "y": 9}},
		"insert of existing":   {[]string{"x"}, []store.Swap{to("x", 0, 9)}, 0, versions{"x": 1}},
		"names differ in case": {[]string{"A", "a"}, []store.Swap{to("a", 1, 2)}, 1, versions{"A": 1, "a": 2}},
		"several, a conflict": {
			[]string{"a", "b", "c"}, []store.Swap{to("a", 1, 2), to("b", 2, 3), to("c", 1, 2), to("d", 0, 1)}, 1, versions{"a": 2, "b": 1, "c": 1},
		},
		"several, insert of existing": {
			[]string{"b", "c"}, []store.Swap{to("a", 0, 1), to("b", 0, 9), to("c", 1, 2)}, 1, versions{"a": 1, "b": 1, "c": 1},
		},
		"several, conflict first":  {[]string{"b"}, []store.Swap{to("b", 0, 9), to("e", 0, 1)}, 0, versions{"b": 1}},
		"several, one was removed": {[]string{"a"}, []store.Swap{to("removed", 1, 2), to("a", 1, 2)}, 0, versions{"a": 1}},
	} {
		prefix := name + "/"
		want := map[string]*rules.Document{}
		for resource, n := range test.after {
			want[resource] = document(prefix+resource, n)
		}
		for _, before := range test.before {
			insert(t, s, document(prefix+before, 1))
		}
		for _, swap := range test.swaps {
			*swap.Next = *document(prefix+swap.Next.ID, swap.Next.Version.N)
		}
		done, err := s.Swap(t.Context(), test.swaps...)
		require.NoError(t, err, name)
		require.Equal(t, test.done, done, name)
		after := map[string]*rules.Document{}
		for _, resource := range listed(t, s, rules.Query{Prefix: prefix}) {
			after[strings.TrimPrefix(resource, prefix)] = stored(t, s, resource)
		}
		require.Equal(t, want, after, name)
	}
}

func swapSeveral(t *testing.T, s store.Store) {
	swaps := make([]store.Swap, store.MaxSwaps)
	for i := range swaps {
		swaps[i].Next = document(fmt.Sprint("x", i), 2)
		if i%2 == 0 {
			insert(t, s, document(fmt.Sprint("x", i), 1))
			swaps[i].Prev = version(1)
		}
	}
	done, err := s.Swap(t.Context(), swaps...)
	require.NoError(t, err)
	require.Equal(t, len(swaps), done)
	for i := range swaps {
		require.Equal(t, document(fmt.Sprint("x", i), 2), stored(t, s, fmt.Sprint("x", i)))
	}
}

func swapBounds(t *testing.T, s store.Store) {
	many := make([]store.Swap, store.MaxSwaps+1)
	for i := range many {
		many[i].Next = document(fmt.Sprint(i), 1)
	}
	_, err := s.Swap(t.Context(), many...)
	require.ErrorIs(t, err, store.ErrNotSent)
	require.ErrorContains(t, err, "101")

	huge := document("huge", 1)
	huge.Entries[0].Comment = string(make([]byte, 16<<20))
	unversioned := document("unversioned", 1)
	unversioned.Version = rules.Version{}
	for _, d := range []*rules.Document{huge, unversioned} {
		_, err = s.Swap(t.Context(), store.Swap{Next: d})
		require.ErrorIs(t, err, store.ErrNotSent)
		require.ErrorContains(t, err, d.ID)
	}
}

func swapConcurrent(t *testing.T, s store.Store) {
	const writers, rounds = 8, 20
	for round := range int64(rounds) {
		var won sync.Map
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				swap := store.Swap{Next: document("x", round+1)}
				swap.Next.Version.R = fmt.Sprint("writer", w)
				if round > 0 {
					swap.Prev = rules.Version{N: round, R: "settled"}
				}
				swaps := []store.Swap{swap}
				if w%2 == 0 { // as one of several
					swaps = append(swaps, store.Swap{Next: document(fmt.Sprint("y", round, w), 1)})
				}
				done, err := s.Swap(t.Context(), swaps...)
				if err != nil || done > 0 {
					won.Store(swap.Next.Version.R, err)
				}
			})
		}
		wg.Wait()
		winners := 0
		won.Range(func(r, err any) bool {
			require.Nil(t, err)
			require.Equal(t, r, stored(t, s, "x").Version.R)
			winners++
			return true
		})
		require.Equal(t, 1, winners)
		settled := document("x", round+1)
		prev := stored(t, s, "x").Version
		settled.Version.R = "settled"
		done, err := s.Swap(t.Context(), store.Swap{Prev: prev, Next: settled})
		require.NoError(t, err)
		require.Equal(t, 1, done)
	}
}

func extendRaises(t *testing.T, s store.Store) {
	insert(t, s, document("x", 1), document("y", 1), document("z", 1))
	rest, r, err := s.Extend(t.Context(), []store.Extension{
		{Resource: "x", ID: "x/a", End: at(200), At: at(50), IdleAt: at(300)},
		{Resource: "y", ID: "y/a", End: at(201), At: at(51), IdleAt: at(301)},
		{Resource: "y", ID: "y/b", End: at(202), At: at(52), IdleAt: at(302)},
	})
	require.NoError(t, err)
	require.Empty(t, rest)
	require.NotEmpty(t, r)

	x, y := document("x", 1), document("y", 1)
	x.Version, y.Version = rules.Version{N: 2, R: r}, rules.Version{N: 2, R: r}
	times := []time.Time{at(50), at(51), at(52)}
	x.Entries[0].ExpiresAt, x.Entries[0].RenewedAt, x.IdleAt = at(200), &times[0], at(300)
	y.Entries[0].ExpiresAt, y.Entries[0].RenewedAt = at(201), &times[1]
	y.Entries[1].ExpiresAt, y.Entries[1].RenewedAt, y.IdleAt = at(202), &times[2], at(302)
	require.Equal(t, x, stored(t, s, "x"))
	require.Equal(t, y, stored(t, s, "y"))
	require.Equal(t, document("z", 1), stored(t, s, "z"))

	_, other, err := s.Extend(t.Context(), nil)
	require.NoError(t, err)
	require.NotEqual(t, r, other)
}

func extendNeverShortens(t *testing.T, s store.Store) {
	renewed := at(60)
	d := document("x", 1)
	d.Entries[0].RenewedAt = &renewed
	insert(t, s, d)
	rest, r, err := s.Extend(t.Context(), []store.Extension{{Resource: "x", ID: "x/a", End: at(99), At: at(59), IdleAt: at(99)}})
	require.NoError(t, err)
	require.Empty(t, rest)
	d.Version = rules.Version{N: 2, R: r}
	require.Equal(t, d, stored(t, s, "x"))
}

func extendMakesSwapsFail(t *testing.T, s store.Store) {
	insert(t, s, document("x", 1))
	// The extension changes nothing but the version, and that is enough.
	_, _, err := s.Extend(t.Context(), []store.Extension{{Resource: "x", ID: "x/a", End: at(1), At: at(1), IdleAt: at(1)}})
	require.NoError(t, err)
	done, err := s.Swap(t.Context(), store.Swap{Prev: version(1), Next: document("x", 2)})
	require.NoError(t, err)
	require.Zero(t, done)
}

func extendMissing(t *testing.T, s store.Store) {
	nameless := document("nameless", 1)
	nameless.Entries[0].ID = ""
	insert(t, s, document("w", 1), document("x", 1), document("y", 1), nameless)
	rest, r, err := s.Extend(t.Context(), []store.Extension{
		{Resource: "w", ID: "w/a", End: at(200), At: at(50), IdleAt: at(300)},
		{Resource: "w", ID: "w/b", End: at(200), At: at(50), IdleAt: at(300)},
		{Resource: "x", ID: "x/a", End: at(200), At: at(50), IdleAt: at(300)},
		{Resource: "x", ID: "gone", End: at(200), At: at(50), IdleAt: at(300)},
		{Resource: "y", ID: "gone", End: at(200), At: at(50), IdleAt: at(300)},
		{Resource: "missing", ID: "x/a", End: at(200), At: at(50), IdleAt: at(300)},
		{Resource: "nameless", ID: "", End: at(200), At: at(50), IdleAt: at(300)},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"x": false, "y": false, "missing": false, "nameless": false}, rest)
	require.Equal(t, rules.Version{N: 2, R: r}, stored(t, s, "w").Version)
	require.Equal(t, document("x", 1), stored(t, s, "x"), "it contains one of two")
	require.Equal(t, document("y", 1), stored(t, s, "y"))
	require.Equal(t, nameless, stored(t, s, "nameless"))
	require.Nil(t, stored(t, s, "missing"))
}

func extendTwice(t *testing.T, s store.Store) {
	insert(t, s, document("x", 1))
	rest, _, err := s.Extend(t.Context(), []store.Extension{
		{Resource: "x", ID: "x/a", End: at(201), At: at(50), IdleAt: at(300)},
		{Resource: "x", ID: "x/a", End: at(200), At: at(51), IdleAt: at(301)},
	})
	require.NoError(t, err)
	require.Empty(t, rest)
	x := stored(t, s, "x")
	require.Equal(t, at(201), x.Entries[0].ExpiresAt)
	require.Equal(t, at(51), *x.Entries[0].RenewedAt)
	require.Equal(t, at(301), x.IdleAt)
	require.EqualValues(t, 2, x.Version.N)
}

func extendMany(t *testing.T, s store.Store) {
	const documents = 1100 // three commands
	var parts []store.Extension
	var swaps []store.Swap
	for i := range documents {
		name := fmt.Sprintf("x%05d", i)
		swaps = append(swaps, store.Swap{Next: document(name, 1)})
		parts = append(parts, store.Extension{Resource: name, ID: name + "/a", End: at(200), At: at(50), IdleAt: at(300)})
	}
	for ; len(swaps) > 0; swaps = swaps[store.MaxSwaps:] {
		done, err := s.Swap(t.Context(), swaps[:store.MaxSwaps]...)
		require.NoError(t, err)
		require.Equal(t, store.MaxSwaps, done)
	}
	rest, r, err := s.Extend(t.Context(), parts)
	require.NoError(t, err)
	require.Empty(t, rest)
	n := 0
	for d, err := range s.List(t.Context(), rules.Query{}) {
		require.NoError(t, err)
		require.Equal(t, rules.Version{N: 2, R: r}, d.Version)
		require.Equal(t, fmt.Sprintf("x%05d", n), d.ID)
		require.Equal(t, at(200), d.Entries[0].ExpiresAt)
		n++
	}
	require.Equal(t, documents, n)
}

func reserve(t *testing.T, s store.Store) {
	d := document("x", 1)
	insert(t, s, d)
	reservation := rules.Reservation{By: "process", Until: at(1)}
	require.NoError(t, s.Reserve(t.Context(), "x", reservation))
	x := stored(t, s, "x")
	require.EqualValues(t, 2, x.Version.N)
	require.NotEqual(t, d.Version.R, x.Version.R)
	d.Version, d.Reserved = x.Version, &reservation
	require.Equal(t, d, x)

	require.NoError(t, s.Reserve(t.Context(), "x", rules.Reservation{By: "other", Until: at(2)}))
	require.Equal(t, "other", stored(t, s, "x").Reserved.By)
	require.NotEqual(t, x.Version.R, stored(t, s, "x").Version.R)
	require.NoError(t, s.Reserve(t.Context(), "missing", reservation))
	require.Nil(t, stored(t, s, "missing"))
}

func reserveReserved(t *testing.T, s store.Store) {
	insert(t, s, document("x", 1))
	for _, step := range []struct {
		by        string
		from, end time.Time
		want      string
	}{
		{"far", at(10), at(11), "far"}, {"near", at(10).Add(time.Millisecond), at(12), "far"}, {"far", at(10), at(12), "far"},
		{"next", at(11), at(12), "next"}, {"after the clock was set back", at(8), at(9), "after the clock was set back"},
	} {
		before := stored(t, s, "x")
		require.NoError(t, s.Reserve(t.Context(), "x", rules.Reservation{By: step.by, From: step.from, Until: step.end}))
		x := stored(t, s, "x")
		require.Equal(t, step.want, x.Reserved.By)
		require.Equal(t, before.Reserved == nil || before.Reserved.By != step.want, x.Version != before.Version)
	}
}

// extendReserved has documents that are reserved at the time of the renewals, or not, and one that is gone.
func extendReserved(t *testing.T, s store.Store) {
	now := at(100)
	extension := func(name, id string, yields bool) store.Extension {
		return store.Extension{Resource: name, ID: name + id, End: at(200), At: now, IdleAt: at(300), Yields: yields}
	}
	var parts []store.Extension
	rest := map[string]bool{"gone": false}
	add := func(name string, until time.Time, reserved bool, more ...store.Extension) {
		insert(t, s, document(name, 1))
		require.NoError(t, s.Reserve(t.Context(), name, rules.Reservation{By: "other", Until: until}))
		parts = append(append(parts, extension(name, "/a", true)), more...)
		if reserved {
			rest[name] = true
		}
	}
	parts = append(parts, extension("gone", "/a", true))
	insert(t, s, document("free", 1))
	parts = append(parts, extension("free", "/a", true))
	add("over", now, false)
	add("reserved", now.Add(time.Millisecond), true)
	add("reserved/two", now.Add(time.Second), true, extension("reserved/two", "/b", true))
	add("reserved/longest", now.Add(rules.LongestReservation), true)
	add("clock set back", now.Add(rules.LongestReservation+time.Millisecond), false)
	add("urgent", now.Add(time.Second), false, extension("urgent", "/b", false))
	got, r, err := s.Extend(t.Context(), parts)
	require.NoError(t, err)
	require.Equal(t, rest, got)
	for _, p := range parts {
		d := stored(t, s, p.Resource)
		if _, unchanged := rest[p.Resource]; unchanged {
			require.True(t, d == nil || (d.Version.R != r && d.Entries[0].RenewedAt == nil), p.Resource)
			continue
		}
		require.Equal(t, r, d.Version.R, p.Resource)
		require.Equal(t, now, *d.Entries[0].RenewedAt)
	}
}

func list(t *testing.T, s store.Store) {
	kept, waited := document("p/kept", 1), document("p/waited", 1)
	kept.Attn = []string{rules.StateKept}
	waited.Attn = []string{"exclusive"}
	waited.Waiters = []rules.Waiter{{Caller: rules.Caller{LockID: "lock-w"}, Owner: "owner-w", Since: at(1), ExpiresAt: at(2), OverdueAt: at(2)}}
	last := document("q", 1)
	last.Entries = last.Entries[:1]
	last.Entries[0].LockID = "lock-a\U0010FFFFx"
	insert(t, s, last, waited, kept, document("p", 1))
	for _, test := range []struct {
		q    rules.Query
		want []string
	}{
		{rules.Query{}, []string{"p", "p/kept", "p/waited", "q"}},
		{rules.Query{Resource: "p"}, []string{"p"}},
		{rules.Query{Resource: "missing"}, []string{}},
		{rules.Query{Prefix: "p/"}, []string{"p/kept", "p/waited"}},
		{rules.Query{Prefix: "p\xff"}, []string{}},
		{rules.Query{Contended: true}, []string{"p/kept", "p/waited"}},
		{rules.Query{Contended: true, Prefix: "p/w"}, []string{"p/waited"}},
		{rules.Query{Contended: true, Resource: "p"}, []string{}},
		{rules.Query{Waiting: true}, []string{"p/waited"}},
		{rules.Query{Waiting: true, Prefix: "q"}, []string{}},
		{rules.Query{LockID: "lock-b"}, []string{"p", "p/kept", "p/waited"}},
		{rules.Query{LockID: "lock-w"}, []string{"p/waited"}},
		{rules.Query{LockID: "owner-b"}, []string{}},
		{rules.Query{Owner: "owner-b"}, []string{"p", "p/kept", "p/waited"}},
		{rules.Query{Owner: "owner-w"}, []string{"p/waited"}},
		{rules.Query{Owner: "lock-w"}, []string{"p/waited"}},
		{rules.Query{LockIDPrefix: "lock-a"}, []string{"p", "p/kept", "p/waited", "q"}},
		{rules.Query{LockIDPrefix: "lock-a\U0010FFFF"}, []string{"q"}},
		{rules.Query{LockIDPrefix: "lock-w", Owner: "owner-b"}, []string{"p/waited"}},
		{rules.Query{LockIDPrefix: "\U0010FFFF"}, []string{}},
	} {
		require.Equal(t, test.want, listed(t, s, test.q), "%+v", test.q)
	}
	for d, err := range s.List(t.Context(), rules.Query{Resource: "p"}) {
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), d.At, time.Minute)
		d.At = time.Time{}
		require.Equal(t, document("p", 1), &d)
	}
}

func listLastRune(t *testing.T, s store.Store) {
	names := []string{"a", "a\uD7FF", "a\uD7FFx", "a\uE000", "a\U0010FFFF", "a\U0010FFFFz", "b", "\U0010FFFF", "\U0010FFFF\U0010FFFF"}
	for _, name := range names {
		insert(t, s, document(name, 1))
	}
	for prefix, want := range map[string][]string{
		"a":                    {"a", "a\uD7FF", "a\uD7FFx", "a\uE000", "a\U0010FFFF", "a\U0010FFFFz"},
		"a\uD7FF":              {"a\uD7FF", "a\uD7FFx"},
		"a\U0010FFFF":          {"a\U0010FFFF", "a\U0010FFFFz"},
		"\U0010FFFF":           {"\U0010FFFF", "\U0010FFFF\U0010FFFF"},
		"\U0010FFFF\U0010FFFF": {"\U0010FFFF\U0010FFFF"},
	} {
		require.Equal(t, want, listed(t, s, rules.Query{Prefix: prefix}), "%q", prefix)
	}
}

func listStops(t *testing.T, s store.Store) {
	insert(t, s, document("a", 1), document("b", 1))
	for d, err := range s.List(t.Context(), rules.Query{}) {
		require.NoError(t, err)
		require.Equal(t, "a", d.ID)
		break
	}
}

// namesAreData has names and values that a server could take for operators, paths or types.
func namesAreData(t *testing.T, s store.Store) {
	for _, name := range []string{"$set", "$$NOW", "$_id", "a.b", "0", "entries.$[p0]", " ", "\u0001", "ä", "e\u0301"} {
		d := document(name, 1)
		d.Entries[0].LockID, d.Entries[0].Comment, d.Entries[0].Owner = name, "$"+name, "$$ROOT"
		insert(t, s, d)
		next := document(name, 2)
		next.Entries[0] = d.Entries[0]
		done, err := s.Swap(t.Context(), store.Swap{Prev: version(1), Next: next})
		require.NoError(t, err)
		require.Equal(t, 1, done)
		rest, _, err := s.Extend(t.Context(), []store.Extension{{Resource: name, ID: name + "/a", End: at(200), At: at(50), IdleAt: at(300)}})
		require.NoError(t, err)
		require.Empty(t, rest, name)
		require.NoError(t, s.Reserve(t.Context(), name, rules.Reservation{By: "$$NOW", Until: at(1)}))
		x := stored(t, s, name)
		require.EqualValues(t, 4, x.Version.N)
		require.Equal(t, "$$NOW", x.Reserved.By)
		require.Equal(t, "$"+name, x.Entries[0].Comment)
		require.Contains(t, listed(t, s, rules.Query{LockID: name}), name)
		require.Equal(t, []string{name}, listed(t, s, rules.Query{Resource: name}))
	}
}

func identify(t *testing.T, s store.Store) {
	first, err := s.Identify(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, first.ID)
	require.Equal(t, rules.LayoutVersion, first.Version)
	require.WithinDuration(t, time.Now(), first.At, time.Minute)
	insert(t, s, document("x", 1))
	second, err := s.Identify(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.ID, second.ID)
	require.NoError(t, s.Prepare(t.Context()))
	require.NoError(t, s.Prepare(t.Context()))
	require.Equal(t, document("x", 1), stored(t, s, "x"))
}

func endedContext(t *testing.T, s store.Store) {
	insert(t, s, document("x", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range everyOperation(ctx, s) {
		require.ErrorIs(t, err, store.ErrNotSent, name)
		require.ErrorIs(t, err, context.Canceled, name)
	}
	require.Equal(t, document("x", 1), stored(t, s, "x"))
}

// operations returns all operations by name. The writes expect version 1 of "x".
func operations(s store.Store) map[string]func(ctx context.Context) error {
	swap := func(swaps ...store.Swap) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := s.Swap(ctx, swaps...); return err }
	}
	y, x := store.Swap{Next: document("y", 1)}, store.Swap{Prev: version(1), Next: document("x", 2)}
	return map[string]func(ctx context.Context) error{
		"Load":       func(ctx context.Context) error { _, err := s.Load(ctx, "x"); return err },
		"Look":       func(ctx context.Context) error { _, err := s.LoadMajority(ctx, "x"); return err },
		"Versions":   func(ctx context.Context) error { _, err := s.Versions(ctx, "x"); return err },
		"Insert":     swap(y),
		"Replace":    swap(x),
		"ReplaceAll": swap(x, y),
		"Extend": func(ctx context.Context) error {
			_, _, err := s.Extend(ctx, []store.Extension{{Resource: "x", ID: "x/a", End: at(200), At: at(50), IdleAt: at(300)}})
			return err
		},
		"Reserve": func(ctx context.Context) error {
			return s.Reserve(ctx, "x", rules.Reservation{By: "p", Until: at(1)})
		},
		"List": func(ctx context.Context) (last error) {
			for _, err := range s.List(ctx, rules.Query{}) {
				last = err
			}
			return last
		},
		"Identify": func(ctx context.Context) error { _, err := s.Identify(ctx); return err },
		"Prepare":  func(ctx context.Context) error { return s.Prepare(ctx) },
	}
}

// everyOperation returns the error of each operation.
func everyOperation(ctx context.Context, s store.Store) map[string]error {
	errs := map[string]error{}
	for name, operation := range operations(s) {
		errs[name] = operation(ctx)
	}
	return errs
}

func TestMemory_PutAndDelete_AreSeen(t *testing.T) {
	t.Parallel()
	now := at(5).Add(1500 * time.Microsecond)
	m := store.NewMemory(func() time.Time { return now })
	_, ok := m.Document("x")
	require.False(t, ok)
	require.NoError(t, m.Put(document("x", 1)))
	require.NoError(t, m.Put(document("x", 5)))
	require.NoError(t, m.Put(document("w", 1)))
	require.Error(t, m.Put(&rules.Document{ID: "unversioned"}))
	d, ok := m.Document("x")
	require.True(t, ok)
	require.Equal(t, document("x", 5), &d)
	require.Equal(t, []string{"w", "x"}, m.Names())
	loaded, err := m.Load(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, at(5).Add(time.Millisecond), loaded.At, "times have milliseconds, as in the database")
	m.Delete("x")
	require.Nil(t, stored(t, m, "x"))
}
