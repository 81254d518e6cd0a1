package wire

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

func TestLockID_Names_AreEscapedAndReadBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		run         Run
		want, owner string
	}{
		"plain":    {Run{Namespace: "n", WorkflowID: "order-7", RunID: "r1"}, "n/order-7", "n/order-7"},
		"slashes":  {Run{Namespace: "n", WorkflowID: "a/b", RunID: "r"}, "n/a%2Fb", "n/a%2Fb"},
		"percent":  {Run{Namespace: "n", WorkflowID: "100%", RunID: "r"}, "n/100%25", "n/100%25"},
		"NUL":      {Run{Namespace: "n", WorkflowID: "a\x00", RunID: "r"}, "n/a%00", "n/a%00"},
		"no UTF-8": {Run{Namespace: "n", WorkflowID: "\xffä", RunID: "r"}, "n/%FFä", "n/%FFä"},
		"empty ID": {Run{Namespace: "n", RunID: "r"}, "n/", "n/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.run.LockID())
			require.Equal(t, tc.owner, tc.run.Owner())
			require.True(t, strings.HasPrefix(tc.want, NamespacePrefix("n")))
			tc.run.RunID = "" // the lock ID does not contain it
			got, step, err := ParseLockID(tc.want)
			require.NoError(t, err)
			require.Equal(t, tc.run, got)
			require.Empty(t, step)
			got, step, err = ParseLockID(tc.run.StepLockID("7@1/x"))
			require.NoError(t, err)
			require.Equal(t, tc.run, got)
			require.Equal(t, "7@1/x", step)
		})
	}
}

// Temporal's workflow IDs have at most 1,000 bytes, so the lock ID contains them unchanged.
func TestLockID_LongWorkflowID_Fits(t *testing.T) {
	t.Parallel()
	long := Run{Namespace: strings.Repeat("n", 36), WorkflowID: strings.Repeat("ä", 500)}
	got, _, err := ParseLockID(long.LockID())
	require.NoError(t, err)
	require.Equal(t, long, got)
	other := long
	other.WorkflowID = long.WorkflowID[2:] + "ö"
	require.NotEqual(t, long.Owner(), other.Owner(), "it was cut")
}

// The workflow of a step is known, however long the step's name is.
func TestParseLockID_HashedStep_IsReturned(t *testing.T) {
	t.Parallel()
	want := Run{Namespace: "n", WorkflowID: "w/1"}
	for name, hashed := range map[string]bool{"3/Debit": false, "3/" + strings.Repeat("Debit", 20): false, "3/" + strings.Repeat("Debit", 100): true} {
		of, step, err := ParseLockID(want.StepLockID(name))
		require.NoError(t, err)
		require.Equal(t, want, of)
		require.Equal(t, hashed, IsHash(step))
		require.Equal(t, !hashed, step == name)
	}
}

func TestParseLockID_NotAWorkflows_IsRefused(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "plain-go", "a/b/c/d", "n/%", "n/%zz/r", "n/" + hashPrefix + strings.Repeat("0", 64)} {
		_, _, err := ParseLockID(id)
		var invalid *lockcore.InvalidError
		require.ErrorAs(t, err, &invalid, "%q", id)
	}
}

func TestIsNamespaceID_OnlyUUIDs(t *testing.T) {
	t.Parallel()
	require.True(t, IsNamespaceID("32049b68-7872-4094-8e63-d0dd59896a83"))
	for _, other := range []string{
		"", "billing", "32049b68-7872-4094-8e63-d0dd59896a8", "32049b68-7872-4094-8e63-d0dd59896a833",
		"32049b68-7872-4094-8e63-d0dd59896a8g", "32049B68-7872-4094-8E63-D0DD59896A83", "32049b6807872040940806300dd59896a83",
		"32049b68-7872-4094-8e63d-0dd59896a83", strings.Repeat("-", 36), strings.Repeat("0", 36),
	} {
		require.False(t, IsNamespaceID(other), "%q", other)
	}
}

// FuzzLockID checks that every workflow has a lock ID and an owner that lockcore takes, that the ID reads back as the same workflow, and
// that two workflows never share one.
func FuzzLockID(f *testing.F) {
	f.Add("shop", "order-7", "r1", "order-8")
	f.Add("100%", "a/b/", "%2F", "a/b")
	f.Add("", "", "", "/")
	f.Add("n", hashPrefix, "r", "\x00")
	f.Add("n", strings.Repeat("%", 1000), "r", strings.Repeat("%", 1001))
	f.Fuzz(func(t *testing.T, namespaceID, workflowID, runID, otherID string) {
		run := Run{Namespace: namespaceID, WorkflowID: workflowID, RunID: runID}
		id := run.LockID()
		require.LessOrEqual(t, len(id), 1500)
		require.LessOrEqual(t, len(run.Owner()), MaxName)
		for _, text := range []string{id, run.Owner()} {
			require.True(t, utf8.ValidString(text))
			require.NotContains(t, text, "\x00")
		}
		if got, _, err := ParseLockID(id); err == nil {
			got.RunID = runID
			require.Equal(t, run, got)
		} else {
			require.Contains(t, id, hashPrefix)
		}
		require.LessOrEqual(t, len(run.StepLockID(otherID)), 1500)
		require.NotEqual(t, id, run.StepLockID(otherID))
		for _, other := range []Run{{namespaceID, otherID, runID}, {otherID, workflowID, runID}} {
			require.Equal(t, run == other, other.LockID() == id)
		}
		require.Equal(t, id, Run{namespaceID, workflowID, otherID}.LockID(), "all runs are one party")
		for _, other := range []Run{{Namespace: namespaceID, WorkflowID: otherID}, {Namespace: otherID, WorkflowID: workflowID}} {
			require.Equal(t, run.Namespace == other.Namespace && run.WorkflowID == other.WorkflowID, other.Owner() == run.Owner())
		}
	})
}

// An ID or a type that contains the separators of others is not taken for them.
func TestRuleStep_SeparatorsInNames_AreTold(t *testing.T) {
	t.Parallel()
	names := []string{"", "7", "7@1", "7/Debit", "Debit", "7%2FDebit", "/", "%"}
	own := Run{Namespace: "n", WorkflowID: "w"}
	for _, id := range names {
		for _, activityType := range names {
			_, step, err := ParseLockID(own.StepLockID(RuleStep(id, activityType, time.Unix(1700000000, 7))))
			require.NoError(t, err)
			for _, otherID := range names {
				for _, otherType := range names {
					same := id == otherID && activityType == otherType
					require.Equal(t, same, strings.HasPrefix(step, RuleStepPrefix(otherID, otherType)), "%q %q, %q %q", id, activityType, otherID, otherType)
				}
			}
		}
	}
	require.NotEqual(t, RuleStep("7", "Debit", time.Unix(1, 0)), RuleStep("7", "Debit", time.Unix(1, 1)), "the ID is used again")
}

func FuzzCut(f *testing.F) {
	f.Add("äöü", 3)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 0 || n > 1<<16 {
			return
		}
		got := Cut(s, n)
		require.LessOrEqual(t, len(got), n)
		require.True(t, strings.HasPrefix(s, got))
		if utf8.ValidString(s) {
			require.True(t, utf8.ValidString(got))
			require.Greater(t, len(got)+utf8.UTFMax, min(n, len(s)))
		}
	})
}

func TestStandalone_LockID_IsEscapedAndReadBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		of   Standalone
		want string
	}{
		"plain":    {Standalone{"n", "import-7", "Import", "r1"}, "%standalone/n/import-7/Import/r1"},
		"slashes":  {Standalone{"n", "a/b", "c/d", "r"}, "%standalone/n/a%2Fb/c%2Fd/r"},
		"percent":  {Standalone{"n", "100%", "%standalone/", "r"}, "%standalone/n/100%25/%25standalone%2F/r"},
		"no UTF-8": {Standalone{"n", "\xff\x00", "ä", "r"}, "%standalone/n/%FF%00/ä/r"},
		"empty":    {Standalone{"n", "", "", "r"}, "%standalone/n///r"},
		"longest":  {Standalone{"n", strings.Repeat("i", 1000), "T", "r"}, "%standalone/n/" + strings.Repeat("i", 1000) + "/T/r"},
	} {
		require.Equal(t, tc.want, tc.of.LockID(), name)
		got, ok := ParseStandalone(tc.want)
		require.True(t, ok, name)
		require.Equal(t, tc.of, got, name)
	}
	require.Equal(t, "activity import-7 of type Import", Standalone{"n", "import-7", "Import", "r1"}.String())
}

func TestParseStandalone_Others_AreNot(t *testing.T) {
	t.Parallel()
	workflow := Run{Namespace: "n", WorkflowID: "%standalone/n/i/T/r"}
	for _, id := range []string{
		"", "plain-go", "%standalone", "%standalone/n/i/r", "%standalone/n/i/T/r/x", "%standalone/n/%/T/r", "standalone/n/i/T/r", "%janitor/x",
		workflow.LockID(), workflow.StepLockID("%standalone/n/i/T/r"), Run{Namespace: "%standalone", WorkflowID: "n"}.StepLockID("i"),
	} {
		_, ok := ParseStandalone(id)
		require.False(t, ok, "%q", id)
	}
}

// FuzzStandalone checks that every activity without a workflow has a lock ID that lockcore takes, that two of them never share one, and that
// it is never read as a workflow's, nor a workflow's as that of an activity.
func FuzzStandalone(f *testing.F) {
	f.Add("shop", "import-7", "Import", "r1", "import-8")
	f.Add("100%", "a/b/", "c/", "%2F", "a/b")
	f.Add("", "", "", "", "/")
	f.Add("%standalone", "%standalone/", hashPrefix, "r", "\x00")
	f.Add("n", strings.Repeat("%", 1000), strings.Repeat("/", 1000), "r", strings.Repeat("%", 1001))
	f.Fuzz(func(t *testing.T, namespaceID, activityID, activityType, runID, other string) {
		of := Standalone{namespaceID, activityID, activityType, runID}
		id := of.LockID()
		require.LessOrEqual(t, len(id), 1500)
		require.True(t, utf8.ValidString(id))
		require.NotContains(t, id, "\x00")
		_, _, err := ParseLockID(id)
		require.ErrorIs(t, err, lockcore.ErrInvalid)
		got, ok := ParseStandalone(id)
		require.True(t, ok)
		require.True(t, got == of || strings.Contains(id, hashPrefix))
		for _, another := range []Standalone{
			{other, activityID, activityType, runID}, {namespaceID, other, activityType, runID}, {namespaceID, activityID, other, runID},
			{namespaceID, activityID, activityType, other}, {namespaceID, activityType, activityID, runID},
		} {
			require.Equal(t, of == another, another.LockID() == id)
		}
		run := Run{Namespace: namespaceID, WorkflowID: activityID, RunID: runID}
		for _, text := range []string{run.LockID(), run.StepLockID(other), run.StepLockID(RuleStep(activityID, activityType, time.Unix(1, 0))), run.Owner()} {
			_, ok := ParseStandalone(text)
			require.False(t, ok, "%q", text)
		}
		require.False(t, strings.HasPrefix(id, NamespacePrefix(namespaceID)), "a janitor would list it")
	})
}
