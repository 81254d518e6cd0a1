package update

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var runMutants = flag.Bool("mutants", false, "run the exploration on each mutant")

// mutant is a defect, made by replacing a text of a file.
type mutant struct {
	name, file, old, new string
}

// mutants are defects of the update loop, of the store, and of the rules' part in them: which answers need a write. The other rules
// have mutants of their own in package rules.
var mutants = []mutant{
	{"an extend without a new version", "internal/engine/store/memory.go", "d.Version = rules.Version{N: d.Version.N + 1, R: r}", "_ = r"},
	{
		"expiry judged from the cache", "internal/engine/update/line.go",
		"(guess.At.IsZero() || l.doc.ExpiresBy(guess.At) || l.isOld(guess.At))", "guess.At.IsZero()",
	},
	{
		"busy answered from the cache", "internal/engine/update/line.go", "	if l.fresh {\n		for _, t := range told {\n			if t.Call.arrived < l.read {",
		"	{\n		for _, t := range told {\n			if true {",
	},
	{"a read that is older than the call", "internal/engine/update/line.go", "			if t.Call.arrived < l.read {", "			if true {"},
	{"a bulk that goes on after a conflict", "internal/engine/store/memory.go", "stored.version != s.Prev {\n			return i, nil\n		}", "stored.version != s.Prev {\n			defer func(i int) { done = i }(i)\n			continue\n		}"},
	{"a conflict in a bulk counts as a swap", "internal/engine/update/several.go", "l.swapFinished(i < done, err)", "l.swapFinished(i <= done, err)"},
	{"a bulk that fails is forgotten", "internal/engine/update/several.go", "		return l.Failed(err)\n	}\n	l.Skipped()", "		l.Unsent()\n		return nil\n	}\n	l.Skipped()"},
	{"a bulk that stops proves that the rest was not applied", "internal/engine/update/several.go", "	l.Skipped()\n", "	l.Unsent()\n"},
	{"a bulk goes on after an answer that ends it", "internal/engine/update/several.go", "if r.Call == t.call && !proceed(r.Answer) {", "if r.Call == t.call && !proceed(r.Answer) && false {"},
	{"what is owed must have been sent", "internal/engine/update/line.go", "if !l.InFlight(c) && !c.unknown && !c.Owed {", "if !l.InFlight(c) && !c.unknown {"},
	{
		"a conflict taken for a proof", "internal/engine/update/line.go", "		l.Conflicted()\n		return nil",
		"		answers := l.sent.Replies\n		l.Conflicted()\n		var told []Reply\n		for _, t := range answers {\n			l.remove(t.Call)\n" +
			"			told = append(told, Reply{Call: t.Call, Answer: Answer{Err: store.ErrNotSent}})\n		}\n		return told",
	},
	{
		"a debt forgotten after an unknown outcome", "internal/engine/update/line.go", "	if lost {\n		l.debt = true", "	if lost {",
	},
	{"a debt paid by a conflict", "internal/engine/update/line.go", "	if l.conflicts++; l.conflicts > 1 {", "	l.debt, l.owed = false, nil\n	if l.conflicts++; l.conflicts > 1 {"},
	{"owed operations are not applied", "internal/engine/update/line.go", "calls = slices.Concat(calls[:first], l.owed, calls[first:])", "calls = slices.Concat(calls[:first], calls[first:])"},
	{
		"all that is owed is forgotten by a swap", "internal/engine/update/line.go",
		"return answered(step.Replies, c) })\n	l.debt", "return true })\n	l.debt",
	},
	{"superseded without a swap", "lockcore/rules/settle.go", "r.Outcome == Busy || r.Outcome == Full", "r.Outcome == Superseded || r.Outcome == Busy || r.Outcome == Full"},
	{"lost without a swap", "lockcore/rules/settle.go", "r.Outcome == Busy || r.Outcome == Full", "r.Outcome == Lost || r.Outcome == Busy || r.Outcome == Full"},
	{"again without a swap", "lockcore/rules/settle.go", "r.Outcome == Busy || r.Outcome == Full", "r.Outcome == Again || r.Outcome == Busy || r.Outcome == Full"},
	{"an abandoned call is not taken back", "internal/engine/update/line.go", "	l.takeBack(c)\n	return true", "	return true"},
	{"a call that fails is not taken back", "internal/engine/update/line.go", "		if c.unknown || c.Owed {\n			l.takeBack(c)", "		if false {\n			l.takeBack(c)"},
	{"a call is not unknown after a failure", "internal/engine/update/line.go", "			t.Call.unknown, t.Call.lost = true, true\n		}\n	}", "			_ = t\n		}\n	}"},
	{"a call is not unknown after a conflict", "internal/engine/update/line.go", "func (l *Line) Conflicted() {\n	for _, t := range l.sent.Replies {\n		t.Call.unknown, t.Call.asleep = true, false", "func (l *Line) Conflicted() {\n	for _, t := range l.sent.Replies {\n		t.Call.asleep = false"},
	{"an extend advances what was only read", "internal/engine/update/line.go", " || !l.committed ||", " ||"},
	{"the cache survives a conflict", "internal/engine/update/line.go", "	l.known, l.fresh = false, false\n	l.failures = 0\n	if l", "	l.fresh = false\n	l.failures = 0\n	if l"},
	{"the cache survives a failure", "internal/engine/update/line.go", "	l.known, l.fresh = false, false\n	l.failures++", "	l.failures++"},
	{"an old read dates what comes later", "internal/engine/update/line.go", "		l.fresh = false // later calls", "		// later calls"},
	{"sleeping calls are not served", "internal/engine/update/line.go", "&& sleeper.isGranted(a.doc)", "&& false"},
	{"a swap that was not sent is forgotten with its calls", "internal/engine/update/line.go", "		told = append(told, Reply{Call: c, Answer: Answer{Err: err, Unknown: c.unknown}})", "		told = append(told, Reply{Call: c, Answer: Answer{Err: err}})"},
	{"a sleeping call is told that it has failed", "internal/engine/update/line.go", "if c.Sleeps && !fatal && c.queued {", "if false {"},
	{"an extend does not touch the cache in flight", "internal/engine/update/line.go", "l.doc, l.known, l.fresh, l.changed = nil, false, false, true", "l.doc, l.known, l.fresh = nil, false, false"},
}

// TestMutants checks that each mutant can still be made. With -mutants it also checks that the exploration
// finds each of them.
func TestMutants(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%s: %q must occur once in %s", m.name, m.old, m.file)
	}
	if !*runMutants {
		return
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) { t.Parallel(); m.run(t, root) })
	}
}

var foundBy = regexp.MustCompile(`: (.*): depth (\d+), .*`)

func (m *mutant) run(t *testing.T, root string) {
	file := filepath.Join(root, m.file)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := filepath.Join(t.TempDir(), "mutant.go")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	require.NoError(t, err)
	list := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))
	binary := filepath.Join(t.TempDir(), "explore.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", list, "-c", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), binary, "-test.run", "TestExplor", "-test.failfast", "-test.v", "-states", "7000").CombinedOutput()
	if err == nil {
		t.Errorf("not found: %s", m.name)
		return
	}
	lines := foundBy.FindAllStringSubmatch(string(out), -1)
	why := regexp.MustCompile(`Received unexpected error:\s*\S.*|panic: .*|explore_several.*`).FindString(string(out))
	if len(lines) == 0 {
		t.Logf("found: %s: %s", m.name, why)
		return
	}
	last := lines[len(lines)-1]
	t.Logf("found: %s: in %q at depth %s: %s", m.name, last[1], last[2], why)
}
