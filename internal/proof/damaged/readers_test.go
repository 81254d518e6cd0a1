// Package damaged_test puts bad documents before everything that reads several documents of a collection of locks.
package damaged_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/repair"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/janitor"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/mongolock"
)

// readerCheck reads a collection with a bad document in one way. It fails if the bad document hides another one, or is hidden itself.
type readerCheck struct {
	name string
	run  func(*reader, *testing.T)
}

// checks run in this order: the last ones change documents.
var checks = []readerCheck{
	{"status", (*reader).status}, {"contended", (*reader).contended}, {"losses", (*reader).losses}, {"deadlocks", (*reader).deadlocks}, {"incomplete", (*reader).incomplete},
	{"several", (*reader).several}, {"resources", (*reader).resources}, {"show", (*reader).show}, {"why", (*reader).why},
	{"page", (*reader).page}, {"doctor", (*reader).doctor}, {"janitor", (*reader).janitor}, {"replaces", (*reader).replaces},
	{"mongolock", (*reader).mongolock}, {"waiters", (*reader).waiters}, {"leave", (*reader).leave}, {"clear", (*reader).clear},
}

// Every reader must report a bad document or leave it out, and answer for all others.
func TestReaders_BadDocuments_HideNoOther(t *testing.T) {
	t.Parallel()
	for name, bad := range badDocuments() {
		t.Run(strings.Trim(name, `"$`), func(t *testing.T) {
			t.Parallel()
			r := setup(t, name, bad)
			for _, check := range checks {
				t.Run(check.name, func(t *testing.T) { check.run(r, t) }) //nolint:paralleltest // the last ones change documents
			}
		})
	}
}

func (r *reader) status(t *testing.T) {
	names, damaged := r.list(t, lockcore.Filter{})
	require.Subset(t, names, []string{"z/1", "z/2", "z/3"})
	if r.isName {
		require.Len(t, damaged, 1)
		require.ErrorContains(t, damaged[0], r.name)
	}
}

func (r *reader) contended(t *testing.T) {
	names, damaged := r.list(t, lockcore.Filter{Contended: true})
	require.Contains(t, names, "z/1")
	if r.hasAttn {
		require.Len(t, damaged, 1)
	}
	for _, err := range r.store.List(t.Context(), rules.Query{Waiting: true}) {
		requireDamagedOrNone(t, err)
	}
}

func (r *reader) losses(t *testing.T) {
	for _, err := range r.locker.Losses(t.Context(), lockcore.Filter{Contended: true}) {
		require.ErrorIs(t, err, lockcore.ErrDamaged)
	}
	for _, err := range r.locker.Missed(t.Context(), lockcore.Filter{}) {
		require.ErrorIs(t, err, lockcore.ErrDamaged)
	}
}

func (r *reader) deadlocks(t *testing.T) {
	found, err := r.locker.Deadlocks(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1, "of c and d")
}

// incomplete reads answers that may depend on the bad document: they come with an error that names it.
func (r *reader) incomplete(t *testing.T) {
	found, err := r.site.Deadlocks(t.Context())
	require.Len(t, found, 1)
	r.requireIncomplete(t, err)
}

func (r *reader) requireIncomplete(t *testing.T, err error) {
	t.Helper()
	if !r.hasAttn {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, lockcore.ErrDamaged)
	var incomplete *inspect.IncompleteError
	require.ErrorAs(t, err, &incomplete)
	require.Len(t, incomplete.Resources, 1)
	require.Contains(t, incomplete.Resources[0], r.name)
}

func (r *reader) several(t *testing.T) {
	names := []string{"z/1", "bad", "config", "large"}
	versions, err := r.store.Versions(t.Context(), names...)
	require.NoError(t, err)
	require.Len(t, versions, 1)
	loaded, err := r.store.LoadMajority(t.Context(), names...)
	require.NoError(t, err)
	require.NotNil(t, loaded.Docs["z/1"])
	require.Equal(t, r.isName, len(loaded.Damaged) == 1)
}

func (r *reader) resources(t *testing.T) {
	found, err := r.site.Resources(t.Context(), lockcore.Filter{})
	require.NoError(t, err)
	require.Contains(t, found[0].Name, r.name, "it comes first")
	require.NotEmpty(t, found[0].Damaged)
	require.Empty(t, found[1].Damaged, "the identity is not bad")
}

func (r *reader) show(t *testing.T) {
	if !r.isName {
		return
	}
	shown, ok, err := r.site.Show(t.Context(), r.name)
	require.NoError(t, err)
	require.True(t, ok)
	require.Contains(t, shown.Damaged, "cannot be decoded")
}

func (r *reader) why(t *testing.T) {
	why, err := r.site.Why(t.Context(), "b")
	require.NoError(t, err)
	require.Len(t, why.Waits, 1)
}

func (r *reader) page(t *testing.T) {
	for path, shows := range map[string][]string{"/": {"z/1", "cannot be decoded"}, "/waits": {"z/1"}} {
		page := get(t, r.site, path)
		for _, text := range shows {
			require.Contains(t, page, text, path)
		}
		if path == "/waits" {
			require.Equal(t, r.hasAttn, strings.Contains(page, "so the answer is not complete"))
		}
	}
}

// get returns a page, which must be shown.
func get(t *testing.T, site *inspect.Site, path string) string {
	t.Helper()
	answer := httptest.NewRecorder()
	ui.Handler(ui.Options{Site: *site}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1"+path, http.NoBody))
	require.Equal(t, http.StatusOK, answer.Code)
	return answer.Body.String()
}

func (r *reader) doctor(t *testing.T) {
	doctor := inspect.Doctor{Site: *r.site, ReadOnly: true, NoTemporal: errors.New("no Temporal")}
	findings := doctor.Examine(t.Context())
	about := func(about string) inspect.Finding {
		return findings[slices.IndexFunc(findings, func(f inspect.Finding) bool { return f.About == about })]
	}
	want := inspect.Warning
	if r.isName {
		want = inspect.Broken
	}
	require.Equal(t, want, about("documents").State)
	require.Contains(t, about("documents").What, r.name)
	require.Equal(t, inspect.Warning, about("deadlocks").State)
	require.Equal(t, inspect.OK, about("semaphores").State)
}

func (r *reader) janitor(t *testing.T) {
	temporal, err := client.DialContext(t.Context(), client.Options{HostPort: testenv.TemporalAddress(t)})
	require.NoError(t, err)
	defer temporal.Close()
	j := janitor.New(janitor.Options{
		Locker: r.locker, Temporal: temporal.WorkflowService(), Namespace: "default", NamespaceID: "n",
		Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	result, err := j.Round(t.Context())
	require.NoError(t, err)
	require.Equal(t, r.hasAttn, result.Damaged == 1)
	site := *r.site // lockstep orphans is a round that changes nothing
	site.Temporal = inspect.Temporal{Service: temporal.WorkflowService(), Namespace: "default", NamespaceID: "n"}
	_, err = site.Orphans(t.Context(), sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	r.requireIncomplete(t, err)
	page := get(t, &site, "/orphans")
	require.Equal(t, r.hasAttn, strings.Contains(page, "so the answer is not complete"))
	require.Equal(t, !r.hasAttn, strings.Contains(page, "There are no orphans"))
}

func (r *reader) replaces(t *testing.T) {
	require.NoError(t, repair.Replace(t.Context(), r.coll, "an-old-ID", "a test"))
}

func (r *reader) mongolock(t *testing.T) {
	locks := mongolock.NewClient(r.coll)
	found, err := locks.Status(t.Context(), mongolock.Filter{})
	requireDamagedOrNone(t, err)
	require.Len(t, found, 1)
	found, err = locks.Unlock(t.Context(), "mongolock")
	requireDamagedOrNone(t, err)
	require.Len(t, found, 1)
	_, err = mongolock.NewPurger(locks).Purge(t.Context())
	requireDamagedOrNone(t, err)
}

// waiters waits in one process for the bad document, if it is a resource, and for another one.
func (r *reader) waiters(t *testing.T) {
	other := open(t, r.coll)
	acquired := make(chan error, 1)
	go func() {
		_, err := other.Acquire(t.Context(), request("e", "z/2"))
		acquired <- err
	}()
	if r.isName {
		_, err := other.Acquire(t.Context(), request("f", r.name))
		require.ErrorIs(t, err, lockcore.ErrDamaged)
		other.WatchFor(r.name)
	}
	require.Eventually(t, func() bool {
		names, _ := r.list(t, lockcore.Filter{Resource: "z/2", States: []lockcore.State{lockcore.StateWaiting}})
		return len(names) == 1
	}, 20*time.Second, 20*time.Millisecond, "it does not wait")
	require.NoError(t, r.locker.Leave(t.Context(), r.leases[1]))
	select {
	case err := <-acquired:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.Fail(t, "the waiter was not granted the resource")
	}
}

// leave leaves several resources, one of which cannot be read.
func (r *reader) leave(t *testing.T) {
	if !r.isName {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	bad := r.leases[0]
	bad.Resource = r.name
	require.ErrorIs(t, open(t, r.coll).Leave(ctx, bad, r.leases[0]), lockcore.ErrDamaged)
	names, _ := r.list(t, lockcore.Filter{LockID: "a"})
	require.Empty(t, names, "the other one was left")
}

func (r *reader) clear(t *testing.T) {
	cleared, err := repair.Clear(t.Context(), r.locker, r.coll, "a test")
	require.NoError(t, err)
	require.Positive(t, cleared.Holds)
	require.Equal(t, r.isName, slices.Equal(cleared.Deleted, []string{r.name}))
}

func requireDamagedOrNone(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, lockcore.ErrDamaged)
	}
}
