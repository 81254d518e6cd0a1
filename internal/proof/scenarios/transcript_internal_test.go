package scenarios

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewriteFlag = flag.Bool("rewrite", false, "write the answers that the rules give into the transcripts")

// TestTranscripts_AreAsRewritten also fails if a chapter contains a line that is neither an operation, an answer nor a comment.
func TestTranscripts_AreAsRewritten(t *testing.T) {
	t.Parallel()
	for _, name := range chapterNames() {
		text, err := rewrite(name, chapter(name))
		require.NoError(t, err)
		if *rewriteFlag {
			require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
			continue
		}
		want, got := strings.Split(chapter(name), "\n"), strings.Split(text, "\n")
		for i := range min(len(want), len(got)) {
			require.Equal(t, want[i], got[i], "%s:%d: to accept the answers of the rules, run this test with -rewrite", name, i+1)
		}
		require.Len(t, got, len(want), name)
	}
}
