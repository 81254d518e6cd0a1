package scenarios

import (
	"flag"
	"os"
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
		require.Equal(t, text, chapter(name), "%s: to accept the answers, run this test with -rewrite", name)
	}
}
