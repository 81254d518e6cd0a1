package protocol

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestLockIDIsWhatTheProtocolSays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		run  Run
		want string
	}{
		"plain":             {Run{Cluster: "default", Namespace: "shop", WorkflowID: "order-7", RunID: "r1"}, "temporal:default/shop/order-7/r1"},
		"slashes in the ID": {Run{Cluster: "c", Namespace: "n", WorkflowID: "a/b//c/", RunID: "r"}, "temporal:c/n/a/b//c//r"},
		"empty ID":          {Run{Cluster: "c", Namespace: "n", RunID: "r"}, "temporal:c/n//r"},
		"slash in a place":  {Run{Cluster: "c/d", Namespace: "100%", WorkflowID: "w", RunID: "r"}, "temporal:c%2Fd/100%25/w/r"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.run.LockID())
			got, err := ParseLockID(tc.want)
			require.NoError(t, err)
			require.Equal(t, tc.run, got)
		})
	}
}

func TestLockIDOfALongWorkflowIDFitsAndSaysSo(t *testing.T) {
	t.Parallel()
	long := Run{Cluster: "default", Namespace: "shop", WorkflowID: strings.Repeat("ä", 500), RunID: "r1"}
	id := long.LockID()
	require.LessOrEqual(t, len(id), MaxName)
	got, err := ParseLockID(id)
	require.NoError(t, err)
	require.True(t, got.Hashed)
	require.Equal(t, "r1", got.RunID)

	other := long
	other.WorkflowID += "x"
	require.NotEqual(t, id, other.LockID())
}

func TestLockIDOfAnotherPartyIsRefused(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "plain-go", "temporal:", "temporal:a/b", "temporal:a/b/c", "other:a/b/c/d"} {
		_, err := ParseLockID(id)
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid, "%q", id)
	}
}

// FuzzLockID checks that every run has a lock ID that lockcore takes, that it reads back as the same run,
// and that two runs never share one.
func FuzzLockID(f *testing.F) {
	f.Add("default", "shop", "order-7", "r1", "order-8")
	f.Add("c/d", "100%", "a/b/", "%2F", "a/b")
	f.Add("", "", "", "", "/")
	f.Add("c", "n", hashed("x"), "r", "x")
	f.Add("c", hashed("n"), "w", "r", "\x00")
	f.Add("c", "n", strings.Repeat("w", 1000), "r", strings.Repeat("w", 1001))
	f.Fuzz(func(t *testing.T, cluster, namespace, workflowID, runID, otherID string) {
		run := Run{Cluster: cluster, Namespace: namespace, WorkflowID: workflowID, RunID: runID}
		id := run.LockID()
		require.LessOrEqual(t, len(id), MaxName)
		require.True(t, utf8.ValidString(id))
		require.NotContains(t, id, "\x00")

		got, err := ParseLockID(id)
		require.NoError(t, err)
		if got.Hashed {
			require.Equal(t, hashed(workflowID), got.WorkflowID)
		} else {
			require.Equal(t, workflowID, got.WorkflowID)
		}
		require.Equal(t, place(cluster), escaper.Replace(got.Cluster))
		require.Equal(t, place(namespace), escaper.Replace(got.Namespace))
		require.Equal(t, place(runID), escaper.Replace(got.RunID))

		other := run
		other.WorkflowID = otherID
		require.Equal(t, workflowID == otherID, other.LockID() == id)
	})
}

// FuzzParseLockID checks that no text makes the parser panic, and that what it reads of a workflow ID
// comes back from a lock ID made of it.
func FuzzParseLockID(f *testing.F) {
	f.Add("temporal:default/shop/order-7/r1")
	f.Add("temporal:%2F/%/a//")
	f.Add("temporal:c/n/" + hashed("w") + "/r")
	f.Fuzz(func(t *testing.T, id string) {
		run, err := ParseLockID(id)
		if err != nil {
			require.ErrorIs(t, err, lockcore.ErrInvalid)
			return
		}
		again, err := ParseLockID(run.LockID())
		require.NoError(t, err)
		if run.Hashed || !again.Hashed {
			require.Equal(t, run.WorkflowID, again.WorkflowID)
		}
	})
}
