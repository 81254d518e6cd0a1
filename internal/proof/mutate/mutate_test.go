package mutate

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const source = `package p

const limit = 20

func (s *Set[T]) Add(v T, more ...T) bool {
	if n := len(s.all); n > limit && !s.open && (v == s.last || s.any) {
		s.full, s.count = true, n
		return false
	}
	for _, m := range more {
		s.put(m, limit)
	}
	s.put(v, 1)
	return s.ok
}

func kind(n int) string {
	switch {
	case n < 0, n > limit:
		return join("out", "side")
	case n == 0:
		return ""
	}
	return pair{a: "x", b: "y"}.a
}
`

func TestApply_Edit_ChangesTheNode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, at, do, old, new string }{
		{"limit", "value", "1_000", "limit = 20", "limit = 1_000"},
		{"Set.Add", "if", "drop", source[strings.Index(source, "\tif n"):strings.Index(source, "\tfor _")], "\n"},
		{"Set.Add", "stmt 3", "drop", "\ts.put(v, 1)\n", ""},
		{"Set.Add", "call 3", "drop", "\ts.put(v, 1)\n", ""},
		{"Set.Add", "if init", "drop", "n := len(s.all); ", ""},
		{"Set.Add", "&& 1", "drop", "n > limit && ", ""},
		{"Set.Add", "&& 2", "drop", " && !s.open", ""},
		{"Set.Add", "&& 3", "true", "(v == s.last || s.any)", "true"},
		{"Set.Add", "&& 3", "op &&", "s.last || s.any", "s.last && s.any"},
		{"Set.Add", "&& 3 || 1", "drop", "v == s.last || ", ""},
		{"Set.Add", "&& 1", "op <=", "n > limit &&", "n <= limit &&"},
		{"Set.Add", "cond", "$3 && $1", "n > limit && !s.open && (v == s.last || s.any)", "(v == s.last || s.any) && (n > limit)"},
		{"Set.Add", "&& 2", "$ || true", "!s.open", "(!s.open || true)"},
		{"Set.Add", "&& 2", "$1", "!s.open", "s.open"},
		{"Set.Add", "if assign 2 target", "drop", "s.full, s.count = true, n", "s.count = n"},
		{"Set.Add", "if assign 2 target 2", "drop", "s.full, s.count = true, n", "s.full = true"},
		{"Set.Add", "if assign 2 value", "$ && n == 0", "= true, n", "= true && n == 0, n"},
		{"Set.Add", "for arg 2", "drop", "(m, limit)", "(m)"},
		{"Set.Add", "for arg", "drop", "(m, limit)", "(limit)"},
		{"Set.Add", "for call", "$0($2, $1)", "s.put(m, limit)", "s.put(limit, m)"},
		{"Set.Add", "stmt 3", "return true; $", "\ts.put(v, 1)", "\treturn true; s.put(v, 1)"},
		{"Set.Add", "return 2 value", "$.x", "return s.ok", "return s.ok.x"},
		{"Set.Add", "const", "2 * $", "(v, 1)", "(v, 2 * 1)"},
		{"kind", "case", "drop", "\tcase n < 0, n > limit:\n\t\treturn join(\"out\", \"side\")\n", ""},
		{"kind", "cond 2", "drop", "n < 0, n > limit", "n < 0"},
		{"kind", "case 2 cond", "false", "n == 0", "false"},
		{"kind", "return value", "$2", `join("out", "side")`, `"side"`},
		{"kind", "literal elem", "drop", `a: "x", `, ""},
		{"kind", "elem 2 value", "$ + \"!\"", `b: "y"`, `b: "y" + "!"`},
	} {
		t.Run(c.in+" "+c.at+" "+c.do, func(t *testing.T) {
			t.Parallel()
			root := write(t, source)
			require.Equal(t, 1, strings.Count(source, c.old))
			changed, err := Apply(root, Edit{"p", c.in, c.at, c.do})
			require.NoError(t, err)
			want, err := format.Source([]byte(strings.Replace(source, c.old, c.new, 1)))
			require.NoError(t, err)
			got, err := format.Source([]byte(changed[filepath.Join(root, "p", "a.go")]))
			require.NoError(t, err)
			require.Equal(t, squeezed(string(want)), squeezed(string(got)))
		})
	}
}

func TestApply_SeveralEdits_AreMadeOfTheOriginal(t *testing.T) {
	t.Parallel()
	root := write(t, source)
	changed, err := Apply(root, Edit{"p", "kind", "case", "drop"}, Edit{"p", "kind", "case 2 cond", "false"}, Edit{"p", "limit", "value", "0"})
	require.NoError(t, err)
	text := changed[filepath.Join(root, "p", "a.go")]
	require.Contains(t, text, "const limit = 0\n")
	require.Contains(t, text, "case false:")
	require.NotContains(t, text, "side")
}

func TestApply_EditFindsNothing_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	root := write(t, source)
	for _, c := range []struct{ in, at, do, want string }{
		{"Set.Remove", "if", "drop", "0 declarations of Set.Remove"},
		{"Set.Add", "if 2", "drop", `p: Set.Add: if 2: drop: there is no "if 2": line 5 has 1`},
		{"Set.Add", "for if", "drop", `there is no "if 1": line 10 has 0`},
		{"Set.Add", "&& 4", "drop", `there is no "&& 4": line 5 has 3`},
		{"Set.Add", "unless 2", "drop", `"unless" is neither a kind nor a part of a node`},
		{"Set.Add", "cond", "drop", "cannot be dropped"},
		{"Set.Add", "stmt 3", "op <", "has no operator"},
		{"Set.Add", "cond", "op ||", "the operator occurs several times"},
		{"Set.Add", "return value", "$2", `"false" has no $2`},
		{"Set.Add", "cond", "return; $", "an expression must become an expression"},
		{"Set.Add", "stmt 3", "if {", "the result is not Go"},
	} {
		_, err := Apply(root, Edit{"p", c.in, c.at, c.do})
		require.ErrorContains(t, err, c.want)
	}
	_, err := Apply(root, Edit{"p", "kind", "case", "drop"}, Edit{"p", "kind", "return value", "nil"})
	require.ErrorContains(t, err, "overlap")
}

// write writes the source to a file of package p, in a new root.
func write(t *testing.T, source string) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "p"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "p", "a.go"), []byte(source), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "p", "a_test.go"), []byte(source), 0o600))
	return root
}

// squeezed returns a source without blank lines and indentation.
func squeezed(source string) string {
	var lines []string
	for line := range strings.Lines(source) {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}
