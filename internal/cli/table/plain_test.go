package table_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
)

// hostile has what could change a terminal, the order of its text, or the line of a text.
var hostile = []string{
	"\x1b[2J\x1b[31m", "\x1b]8;;http://evil/\x07click\x1b]8;;\x07", "\x1b]0;title\x07", "\a\b\f\v\r", "\x7f", "\u0085\u009b31m\u0090", "\u202e\u2066\u2069\u200f",
	"\u2028\u2029", "\u200b\u00ad\ufeff", "a\tb", "\xff\xc3(\xed\xa0\x80", "\U000e0041", "two\nlockstep: lines",
}

func requirePlain(t *testing.T, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text), "%q", text)
	require.NotRegexp(t, `(?m)^lockstep: lines`, text)
	for _, r := range text {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q in %q", r, text)
	}
}

func TestWriter_HostileText_IsPlain(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	w := table.NewWriter(&b)
	for _, text := range hostile[:len(hostile)-1] { // a line feed is passed on: it may be the command's own
		n, err := w.Write([]byte(text))
		require.NoError(t, err)
		require.Len(t, text, n)
	}
	requirePlain(t, b.String())
	require.Contains(t, b.String(), "click")
}

func TestWriter_CharacterInTwoWrites_IsOneCharacter(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"├─ é \U0001f512", "\u009b\u202e"} {
		var whole, parts strings.Builder
		_, err := table.NewWriter(&whole).Write([]byte(text))
		require.NoError(t, err)
		w := table.NewWriter(&parts)
		for i := range len(text) {
			_, err := w.Write([]byte{text[i]})
			require.NoError(t, err)
		}
		require.Equal(t, whole.String(), parts.String())
		requirePlain(t, parts.String())
	}
}

func TestFprintf_HostileArguments_StayOnTheirLine(t *testing.T) {
	t.Parallel()
	for _, text := range hostile {
		var b strings.Builder
		require.NoError(t, table.Fprintf(&b, "%s %q %v %-12s|%5d|%v %v %v %*d\n",
			text, text, errors.New(text), stringer(text), 7, []string{text}, struct{ Name string }{text}, map[string]any{text: []byte(text)}, 5, int64(7)))
		requirePlain(t, b.String())
		require.Equal(t, 1, strings.Count(b.String(), "\n"))
		require.Contains(t, b.String(), "|    7|")
	}
}

type stringer string

func (s stringer) String() string { return string(s) }

func TestWrite_HostileCells_KeepTheirColumns(t *testing.T) {
	t.Parallel()
	for _, text := range hostile {
		var b strings.Builder
		require.NoError(t, table.Write(&b, []string{"A", "B"}, []string{text, "x"}))
		requirePlain(t, b.String())
		require.Equal(t, 2, strings.Count(b.String(), "\n"))
	}
}

func FuzzJSON_AnyText_IsEscaped(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b strings.Builder
		e := json.NewEncoder(table.JSON(table.NewWriter(&b)))
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(map[string]string{text: text}))
		requirePlain(t, b.String())
		var back map[string]string
		require.NoError(t, json.Unmarshal([]byte(b.String()), &back))
		valid := strings.ToValidUTF8(text, "\ufffd")
		if utf8.ValidString(text) {
			require.Equal(t, map[string]string{valid: valid}, back)
		}
	})
}
