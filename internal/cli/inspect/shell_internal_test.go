package inspect

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// A command that is copied ends what it names, whatever a caller has named it, and does nothing else.
func TestCommandToEnd_HostileNames_ArePassedUnchanged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"account/1", "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", `"; touch pwned; "`, `\'; touch pwned; \`, "a\ntouch pwned\n", "a\rtouch pwned\r",
		"\x1b[201~\ntouch pwned\n", "\x03touch pwned\r", "\x15touch pwned", "!!", "!touch", "a'b\x1b!c", "*", "~", "=ls", "$HOME", "a  b", "#x", "&touch pwned", "|touch pwned",
		">pwned", "\u202etouch pwned", "\u2028touch pwned", "é☃", "\x7f", "{a,b}", "$'\\x41'", "-rf", "--reason", "'\n'",
	} {
		dir := t.TempDir()
		s := &Site{Flags: []string{"--database", "$(touch pwned)"}}
		for _, now := range []bool{false, true} {
			line := s.commandToEnd(&lockcore.Status{Resource: name, Holder: lockcore.Holder{LockID: name}}, now)
			for _, r := range line {
				require.True(t, unicode.IsPrint(r), "%q would be pasted into a terminal: %q", r, line)
			}
			c := exec.CommandContext(t.Context(), "bash", "--norc", "-c", `lockstep() { printf '%s\0' "$@"; }; `+line)
			c.Dir, c.Env = dir, append(c.Environ(), "LC_ALL=C")
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s", out)
			words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			require.Equal(t, "release", words[0])
			n := 0
			for _, word := range words {
				if word == name {
					n++
				}
			}
			require.GreaterOrEqual(t, n, 2, "%q became %q", line, words)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left, "%s", line)
		}
	}
}
