package stack

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestState_Save_IsLoaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := State{
		Up:       true,
		Mongo:    Endpoint{Kind: "documentdb", Address: "mongodb://127.0.0.1:1/", Why: []string{"not docker: no engine"}},
		Temporal: Endpoint{Kind: "path", Address: "127.0.0.1:2", UI: "http://127.0.0.1:3"},
	}
	st.put(Part{Name: "postgres", PID: 7, Start: "boot/8", Ports: map[string]int{"postgres": 9}, Log: "/log"})
	st.put(Part{Name: "mongo-container", PID: 10, Start: "boot/11", Container: "c", Ports: map[string]int{"mongo": 12}})
	require.NoError(t, st.save(dir))
	loaded, err := loadState(dir)
	require.NoError(t, err)
	require.Equal(t, st, loaded)

	info, err := os.Stat(dir + "/state.json")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "a URI may hold a password")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file remains")
}

func TestLoadState_NewFolder_IsEmpty(t *testing.T) {
	t.Parallel()
	st, err := loadState(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, State{}, st)
}

func TestLoadState_Unreadable_NamesFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/state.json", []byte(`{"up":`), 0o600))
	_, err := loadState(dir)
	require.ErrorContains(t, err, dir+"/state.json")
}

func TestLockFile_TakenLock_IsAwaited(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/lock"
	unlock, err := lockFile(t.Context(), path, func() { t.Error("the lock is free") })
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = lockFile(ctx, path, cancel)
	require.ErrorIs(t, err, context.Canceled)

	second, err := lockFile(t.Context(), path, unlock)
	require.NoError(t, err)
	second()
}
