package lockcore_test

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// A reader of the plain lock library meets no word about the layers above it.
func TestDocumentation_MentionsNoWorkflows(t *testing.T) {
	t.Parallel()
	text, err := exec.CommandContext(t.Context(), "go", "doc", "-all", ".").CombinedOutput()
	require.NoError(t, err, string(text))
	foreign := regexp.MustCompile(`(?i)\b(runs|compensat\w*|steps?|temporal|sagas?|workflows?)\b`)
	module := regexp.MustCompile(`github\.com/temporal-lockstep/\S*`) // an import path
	require.Empty(t, foreign.FindAllString(module.ReplaceAllString(string(text), ""), -1))
}
