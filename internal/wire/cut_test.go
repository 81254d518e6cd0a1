package wire

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

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
