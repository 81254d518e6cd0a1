package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The profile has blocks that were not run, one without statements, a file without a covered block, and a package that does not count.
func TestCovered_Profile_CountsFilesFunctionsAndLines(t *testing.T) {
	t.Parallel()
	profile, err := os.Open("testdata/profile.txt")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, profile.Close()) })
	files, err := covered(profile, "testdata")
	require.NoError(t, err)
	require.Equal(t, []file{{
		path:      module + "/example/lock.go",
		functions: []string{"lock.take", "lock.isFree", "after"},
		lines:     2 + 2 + 1 + 3,
	}}, files)
	require.Equal(t, "  example\n    lock.go (8): lock.take, lock.isFree, after\n",
		list(files, []string{module + "/none", module + "/example"}))
}

func TestCovered_BadProfile_Fails(t *testing.T) {
	t.Parallel()
	_, err := covered(strings.NewReader("mode: atomic\n"+module+"/example/lock.go:5.31\n"), "testdata")
	require.ErrorContains(t, err, "in the profile")
}

func TestCounts_ToolsAndCommands_DoNotCount(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		module + "/lockcore": true, module + "/internal/toolsmith": true, module + "/internal/engine/rules/settle.go": true,
		module + "/cmd/lockstep": false, module + "/internal/tools/follow/walks": false, "go.temporal.io/sdk/worker": false,
	} {
		require.Equal(t, want, counts(path), path)
	}
}
