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

var mutants = []mutant{
	// The update loop, and the store.
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
	{"what is owed must have been sent", "internal/engine/update/line.go", "if !sent && !c.unknown && !c.Owed {", "if !sent && !c.unknown {"},
	{
		"a conflict taken for a proof", "internal/engine/update/line.go", "		l.Conflicted()\n		return nil",
		"		answers := l.sent.Replies\n		l.Conflicted()\n		var told []Reply\n		for _, t := range answers {\n			l.remove(t.Call)\n" +
			"			told = append(told, Reply{Call: t.Call, Answer: Answer{Err: store.ErrNotSent}})\n		}\n		return told",
	},
	{
		"a debt forgotten after an unknown outcome", "internal/engine/update/line.go", "	if lost {\n		l.debt = true", "	if lost {",
	},
	{"a debt paid by a conflict", "internal/engine/update/line.go", "	if l.conflicts++; l.conflicts > 1 {", "	l.debt, l.owed = false, nil\n	if l.conflicts++; l.conflicts > 1 {"},
	{"owed operations are not applied", "internal/engine/update/line.go", "	for _, c := range l.owed {\n		a.apply(c)\n", "	for range l.owed {\n"},
	{
		"all that is owed is forgotten by a swap", "internal/engine/update/line.go",
		"return answered(step.Replies, c) })\n	l.debt", "return true })\n	l.debt",
	},
	{"superseded without a swap", "lockcore/rules/settle.go", "r.Outcome == Busy || r.Outcome == Full", "r.Outcome == Superseded || r.Outcome == Busy || r.Outcome == Full"},
	{"lost without a swap", "lockcore/rules/settle.go", "r.Outcome == Busy || r.Outcome == Full", "r.Outcome == Lost || r.Outcome == Busy || r.Outcome == Full"},
	{"again without a swap", "lockcore/rules/settle.go", "r.Outcome == Busy || r.Outcome == Full", "r.Outcome == Again || r.Outcome == Busy || r.Outcome == Full"},
	{"an abandoned call is not taken back", "internal/engine/update/line.go", "	l.takeBack(c)\n	return true", "	return true"},
	{"a call that fails is not taken back", "internal/engine/update/line.go", "		if c.unknown || c.Owed {\n			l.takeBack(c)", "		if false {\n			l.takeBack(c)"},
	{"a call is not unknown after a failure", "internal/engine/update/line.go", "			t.Call.unknown = true\n		}\n	}", "			_ = t\n		}\n	}"},
	{"a call is not unknown after a conflict", "internal/engine/update/line.go", "func (l *Line) Conflicted() {\n	for _, t := range l.sent.Replies {\n		t.Call.unknown = true", "func (l *Line) Conflicted() {\n	for _, t := range l.sent.Replies {\n		_ = t"},
	{"an extend advances what was only read", "internal/engine/update/line.go", " || !l.committed ||", " ||"},
	{"the cache survives a conflict", "internal/engine/update/line.go", "	l.known, l.fresh = false, false\n	l.failures = 0\n	if l", "	l.fresh = false\n	l.failures = 0\n	if l"},
	{"the cache survives a failure", "internal/engine/update/line.go", "	l.known, l.fresh = false, false\n	l.failures++", "	l.failures++"},
	{"an old read dates what comes later", "internal/engine/update/line.go", "		l.fresh = false // later calls", "		// later calls"},
	{"sleeping calls are not served", "internal/engine/update/line.go", "&& sleeper.isGranted(a.doc)", "&& false"},
	{"a swap that was not sent is forgotten with its calls", "internal/engine/update/line.go", "		told = append(told, Reply{Call: c, Answer: Answer{Err: err, Unknown: c.unknown}})", "		told = append(told, Reply{Call: c, Answer: Answer{Err: err}})"},
	{"a sleeping call is told that it has failed", "internal/engine/update/line.go", "if c.Sleeps && !fatal && c.queued {", "if false {"},
	{"an extend does not touch the cache in flight", "internal/engine/update/line.go", "l.doc, l.known, l.fresh, l.changed = nil, false, false, true", "l.doc, l.known, l.fresh = nil, false, false"},

	// The rules of acquire.
	{"waiters ahead do not count", "lockcore/rules/acquire.go", "!slices.ContainsFunc(s.doc.Waiters, s.eligible))", "true)"},
	{"superseded calls are granted", "lockcore/rules/acquire.go", "		s.result.Outcome = Superseded\n		return s.end()", "		_ = op"},
	{"another call of the same order is granted", "lockcore/rules/acquire.go", "return p != nil && p.Alive(s.now) && p.ID != op.Call && p.ID != op.Upgrades", "return false && p != nil"},
	{"a tombstone is not read", "lockcore/rules/acquire.go", "case tombstone != nil:", "case tombstone != nil && false:"},
	{"the same call is granted twice", "lockcore/rules/acquire.go", "return p != nil && p.ID == op.Call && p.Alive(s.now) && Covers(p.Mode, op.Mode)", "return false && p != nil"},
	{"joining does not look at the mode", "lockcore/rules/acquire.go", "case s.covered(op.LockID, op.Mode) &&", "case s.holds(op.LockID) &&"},
	{"a grant does not look for room", "lockcore/rules/acquire.go", "case next && s.fits(op.Party(), op.Room()):", "case next:"},
	{"a grant keeps its waiter", "lockcore/rules/acquire.go", "	s.doc.Waiters = without(s.doc.Waiters, func(w *Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part })\n	if", "	if"},
	{"a grant has no new fence", "lockcore/rules/acquire.go", "if s.result.Outcome == Granted || op.NewFence", "if op.NewFence"},
	{"fences follow the clock alone", "lockcore/rules/acquire.go", "max(s.doc.Fence+1, s.now.UnixMilli())", "s.now.UnixMilli()"},
	{"a superseded part does not drain", "lockcore/rules/acquire.go", "			own = append(own, s.drain(e))", "			_ = e"},
	{"the queue has no bound", "lockcore/rules/acquire.go", "if index < 0 && !ahead && int64", "if index < 0 && false && int64"},
	{"a waiter that is refreshed goes to the end", "lockcore/rules/acquire.go", "		s.doc.Waiters[index] = w", "		s.doc.Waiters = append(slices.Delete(s.doc.Waiters, index, place+1), w)"},
	{"a lapsed claim goes to the end", "lockcore/rules/acquire.go", "s.enqueue(op, index, ahead || claim != nil)", "s.enqueue(op, index, ahead)"},
	{"a waiter that is refreshed keeps its end", "lockcore/rules/acquire.go", "w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead", "w = was"},

	// The other rules.
	{"all modes are compatible", "lockcore/rules/compat.go", "return a == Shared && b == Shared", "return a == Shared || b == Shared"},
	{"limits count one more", "lockcore/rules/compat.go", "int64(len(others)) < p.Limit", "int64(len(others)) <= p.Limit"},
	{"expired entries block", "lockcore/rules/compat.go", "return !e.BelongsTo(p.LockID) && e.ExpiresAt.After(now) &&", "return !e.BelongsTo(p.LockID) &&"},
	{"a renewal finds what is missing", "lockcore/rules/end.go", "	case p == nil:\n		s.result.Outcome = Lost", "	case p == nil:"},
	{"a renewal extends nothing", "lockcore/rules/end.go", "		p.ExpiresAt = later(p.ExpiresAt, expiry(now, p.TTL))\n", ""},
	{"a leave ends other orders", "lockcore/rules/end.go", "return own(e) && e.Order == op.Order && !op.QueueOnly && made(e)", "return own(e) && !op.QueueOnly && made(e)"},
	{"a leave ends nothing that drains", "lockcore/rules/end.go", "e.Part == op.Part && e.State != StateKept", "e.Part == op.Part && e.State != StateKept && e.State != StateDraining"},
	{"a leave keeps its waiter", "lockcore/rules/end.go", "	s.removeWaiters(queue, func(w *Waiter) bool { return w.LockID == op.LockID && w.Part == op.Part && asked(w.Order) })\n	if op.Undo", "	if op.Undo"},
	{"a leave ends all parts of its lock ID", "lockcore/rules/end.go", "made := func(e *Entry) bool { return op.Call == \"\" ||", "made := func(e *Entry) bool { return true || op.Call == \"\" ||"},
	{"an upgrade that is given up stays exclusive", "lockcore/rules/end.go", "		s.downgrade(op.LockID, op.Part)\n		p.ID = op.Upgrades", "		p.ID = op.Upgrades"},
	{"a release ends later orders", "lockcore/rules/end.go", "	return e.Order <= op.Order\n}", "	return true\n}"},
	{"a release lets no part drain", "lockcore/rules/end.go", "if !op.stopped(&e) &&", "if false &&"},
	{"a release is not recorded", "lockcore/rules/end.go", "		s.recordRelease(&op)\n", ""},
	{"a withdrawal removes the waiter's verdict", "lockcore/rules/end.go", "w.Verdict, w.OverdueAt = op.Reason, LongAgo", "w.OverdueAt = LongAgo"},
	{"a withdrawal takes any order", "lockcore/rules/end.go", "w.Part == op.Part && w.Order == op.Order && w.Verdict", "w.Part == op.Part && w.Verdict"},
	{"dead waiters stay", "lockcore/rules/settle.go", "func(w *Waiter) bool { return !w.ExpiresAt.After(now) })\n	if", "func(w *Waiter) bool { return false })\n	if"},
	{"nothing settles", "lockcore/rules/settle.go", "	s.settle()\n", ""},
	{"claims beside exclusive entries", "lockcore/rules/settle.go", "return e.Mode == Exclusive }) {\n		return 0", "return false && e.Mode == Exclusive }) {\n		return 0"},
	{"claims beyond the limit", "lockcore/rules/settle.go", "room := max(0, limit-others(beside, head.LockID))", "room := limit"},
	{"claims to waiters with another limit", "lockcore/rules/settle.go", " && waiting[k].Limit == head.Limit {", " {"},
	{"overdue waiters are served", "lockcore/rules/settle.go", "return w.Waits(s.now) && !w.Overdue(s.now) }", "return w.Waits(s.now) }"},
	{"tombstones are served", "lockcore/rules/document.go", "return w.Verdict == \"\" && w.ExpiresAt.After(now)", "return w.ExpiresAt.After(now)"},
	{"claims have no end", "lockcore/rules/settle.go", "e.ExpiresAt = s.now.Add(ms(max(s.policy.ClaimTTL, w.ClaimTTL)))", "e.ExpiresAt = Never"},
	{"live holds are evicted", "lockcore/rules/settle.go", "return e.Holds() && !e.Alive(s.now) && which(e)", "return e.Holds() && which(e)"},
	{"expired holds are not evicted", "lockcore/rules/settle.go", "	s.doc.Entries = without(s.doc.Entries, gone)\n", ""},
	{"an extension finds what drains", "lockcore/rules/settle.go", "e.State, e.ID = StateDraining, drainingID(e.ID)", "e.State = StateDraining"},
	{"what drains is never dropped", "lockcore/rules/settle.go", "(e.State == StateDraining && !e.Alive(s.now))", "false"},
	{"what drains is dropped at once", "lockcore/rules/settle.go", "(e.State == StateDraining && !e.Alive(s.now))", "e.State == StateDraining"},
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
