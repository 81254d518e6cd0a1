package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithWall_GoOfThisMachine_IsKnown(t *testing.T) {
	t.Parallel()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go"))
	require.NoError(t, err)
	changed, err := withWall(string(text))
	require.NoError(t, err)
	require.Contains(t, changed, "sec += wallError.Load()")
	_, err = withWall("package time")
	require.Error(t, err)
}

func TestRegisters_StaleFence_IsRefusedUnlessUnchecked(t *testing.T) {
	t.Parallel()
	for _, unchecked := range []bool{false, true} {
		log, err := OpenLog(t.TempDir(), "p", 0)
		require.NoError(t, err)
		r := newRegisters(log, unchecked, []string{"x/0"})
		var a Answer
		require.NoError(t, r.Read(&Use{Resource: "x/0", Fence: 2}, &a))
		require.NoError(t, r.Write(&Use{Resource: "x/0", Fence: 1, Value: Value{Balance: 5}}, &a))
		require.Equal(t, !unchecked, a.Refused)
	}
}

func TestRegisters_Change_IsAppliedAndUndoneOnce(t *testing.T) {
	t.Parallel()
	log, err := OpenLog(t.TempDir(), "p", 0)
	require.NoError(t, err)
	r := newRegisters(log, false, []string{"x/0"})
	var a Answer
	change, undo := &Use{Resource: "x/0", Key: "k", Delta: 5}, &Use{Resource: "x/0", Key: "k", Undo: true}
	for range 2 {
		require.NoError(t, r.Apply(change, &a))
		require.EqualValues(t, initialBalance+5, r.total())
	}
	for range 2 {
		require.NoError(t, r.Apply(undo, &a))
		require.NoError(t, r.Apply(change, &a), "it is refused from then on")
		require.EqualValues(t, initialBalance, r.total())
	}
}
