package rules_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/mutate"
)

// mutant breaks one rule: it changes a node of a function, as package mutate describes.
type mutant struct{ function, at, do string }

// TestMutants_EachIsNoticedByAScenario breaks one rule at a time and expects a scenario to fail. All
// mutants are built into one test program: each is a copy of its function, and the original function
// calls the copy if RULES_MUTANT selects it.
func TestMutants_EachIsNoticedByAScenario(t *testing.T) {
	t.Parallel()
	changes := findMutants(t)
	program := buildMutants(t, changes)
	out, err := playMutant(t, program, 0)
	require.NoError(t, err, out)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, m := range mutants {
		t.Run(fmt.Sprintf("%s %q %s", m.function, changes[i].Node, m.do), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			out, err := playMutant(t, program, i+1)
			require.Error(t, err, "no scenario notices it in line %d of %s", changes[i].Line, changes[i].File)
			require.Contains(t, out, "--- FAIL: TestScenarios/", "it ended before a scenario noticed")
			// Without FAIL, because tools that count failed tests search the log for it.
			_, noticed, _ := strings.Cut(strings.Split(out, "\n")[1], "FAIL: ")
			t.Log(noticed)
		})
	}
}

func playMutant(t *testing.T, program string, number int) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, "-test.run=^TestScenarios$", "-test.failfast")
	c.Env = append(os.Environ(), fmt.Sprintf("RULES_MUTANT=%d", number))
	out, err := c.CombinedOutput()
	return string(out), err
}

// findMutants returns the changes of all mutants.
func findMutants(t *testing.T) (changes []*mutate.Change) {
	t.Helper()
	for _, m := range mutants {
		c, err := mutate.Edit{In: m.function, At: m.at, Do: m.do}.Find(".")
		require.NoError(t, err)
		changes = append(changes, c)
	}
	return changes
}

// buildMutants builds the tests of this package with all mutants.
func buildMutants(t *testing.T, changes []*mutate.Change) (program string) {
	t.Helper()
	dir := t.TempDir()
	wd, err := os.Getwd()
	require.NoError(t, err)
	overlay := map[string]string{}
	add := func(name, source string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(source), 0o600))
		overlay[filepath.Join(wd, name)] = path
	}
	add("mutant.go", "package rules\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutant, _ = strconv.Atoi(os.Getenv(\"RULES_MUTANT\"))\n")
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			add(name, withMutants(t, name, changes))
		}
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, replace, 0o600))
	program = filepath.Join(dir, "rules.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", list, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// withMutants returns the source of a file with the mutants of its functions.
func withMutants(t *testing.T, name string, changes []*mutate.Change) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	source := string(content)
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, content, 0)
	require.NoError(t, err)
	offset := func(p token.Pos) int { return positions.Position(p).Offset }
	var out, copies strings.Builder
	written := 0
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for i, c := range changes {
			if c.File != name || c.Decl.From != offset(f.Pos()) {
				continue
			}
			mutated := fmt.Sprintf("%sMutant%d", f.Name.Name, i+1)
			text, err := mutate.Replace(source[:c.Decl.To], c.Replaced)
			require.NoError(t, err)
			copies.WriteString("\n" + strings.Replace(text[c.Decl.From:], f.Name.Name+"(", mutated+"(", 1) + "\n")
			out.WriteString(source[written : offset(f.Body.Lbrace)+1])
			written = offset(f.Body.Lbrace) + 1
			fmt.Fprintf(&out, "\n\tif mutant == %d {\n\t\t%s\n\t}\n", i+1, callOf(f, mutated))
		}
	}
	return out.String() + source[written:] + copies.String()
}

// callOf returns a call of a copy of a function, and its return.
func callOf(f *ast.FuncDecl, name string) string {
	if f.Recv != nil {
		name = f.Recv.List[0].Names[0].Name + "." + name
	}
	var args []string
	for _, field := range f.Type.Params.List {
		for _, param := range field.Names {
			arg := param.Name
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results == nil {
		return call + "\n\t\treturn"
	}
	return "return " + call
}

var mutants = []mutant{
	// Compatibility.
	{"Covers", "value", "have == want"},
	{"Compatible", "value", "op ||"},
	{"Entry.BelongsTo", "&& 2", "drop"},
	{"Entry.ofPart", "&& 2", "drop"},
	{"Caller.SamePart", "&& 2", "drop"},
	{"Caller.SameRequest", "&& 2", "drop"},
	{"Caller.isUpTo", "&& 2", "drop"},
	{"Entry.Counts", "&& 2", "true"},
	{"Entry.Counts", "&& 2", "false"},
	{"Entry.Counts", "&& 1", "true"},
	{"Entry.Counts", "&& 3", "true"},
	{"Party.enclosedBy", "&& 3", "drop"},
	{"Document.Blockers", "if 2 && 3", "false"},

	// Policies.
	{"Document.LimitFor", "cond", "true"},
	{"Document.LimitFor", "|| 1", "drop"},
	{"Policies.For", "case 1 && 2", "false"},
	{"Policies.For", "case 2 || 1", "drop"},
	{"Policies.For", "case 2 || 2", "drop"},
	{"Policies.For", "case 2 || 2", "true"},
	{"PolicyID.names", "cond", "false"},
	{"Document.refuses", "|| 1", "true"},
	{"Document.Admits", "&& 1", "drop"},
	{"state.grantOrQueue", "case 10 cond", "false"},
	{"state.grantOrQueue", "case 10 && 1", "true"},
	{"state.grantOrQueue", "case 10 && 2", "true"},

	// Pools.
	{"Compatible", "|| 2", "drop"},
	{"Party.Excludes", "|| 2", "drop"},
	{"Party.Excludes", "|| 1", "drop"},
	{"Document.refuses", "|| 2", "drop"},
	{"Document.refuses", "case cond", "false"},
	{"Document.refuses", "case 2 cond", "false"},
	{"Document.refuses", "case 2 && 2", "true"},
	{"Document.refuses", "case 3 cond", "false"},
	{"Document.Precedes", "&& 3", "true"},
	{"Document.isOfOtherKind", "&& 2", "true"},
	{"Document.isOfOtherKind", "|| 2", "true"},
	{"Document.isOfOtherKind", "|| 2", "false"},
	{"state.grantOrQueue", "case 3 cond", "$ && false"},
	{"state.grantOrQueue", "case 3 || 1", "drop"},
	{"state.grantOrQueue", "case 3 || 2", "unfit && false"},
	{"state.grantOrQueue", "case 3 && 3", "true"},
	{"state.grantOrQueue", "case 3 stmt 2", "drop"},
	{"state.grantOrQueue", "assign 4 || 2", "drop"},
	{"Entry.roomFor", "cond", "false"},
	{"Entry.roomFor", "&& 1", "true"},
	{"Party.with", "assign value", "p.Member"},
	{"Party.with", "assign value", "v.member(p)"},
	{"prepared.member", "elem 2", "drop"},
	{"prepared.member", "elem", "drop"},
	{"prepared.member", "elem", "of.Within, $"},
	{"prepared.member", "if 2 cond", "true"},
	{"Entry.givesMember", "if 2 cond", "false"},
	{"Entry.givesMember", "return 3 && 2", "true"},
	{"Entry.givesMember", "return 3 value", "false"},
	{"Entry.givesMember", "return 4 && 2", "true"},
	{"Entry.givesMember", "return 4 value", "false"},
	{"Entry.givesMember", "return 5 value", "false"},
	{"Document.reservedFor", "&& 2", "true"},
	{"Document.reservedFor", "&& 3", "true"},
	{"prepared.hasMemberFor", "|| 1", "drop"},
	{"prepared.hasMemberFor", "|| 2", "drop"},
	{"prepared.hasMemberFor", "|| 3", "drop"},
	{"prepared.hasMemberFor", "|| 3", "true"},
	{"prepared.excluding", "&& 2", "false"},
	{"prepared.Admits", "&& 3", "true"},
	{"prepared.choose", "+ 2", "drop"},
	{"prepared.choose", "+ 1", "0*last - 1"},
	{"prepared.choose", "|| 1", "drop"},
	{"prepared.choose", "case 2 stmt", `if member == "" { return m.Name }`},
	{"prepared.choose", "case 3 cond", "false"},
	{"prepared.choose", "|| 2", "drop"},
	{"prepared.choose", "if 2 || 2", "$ && false"},
	{"prepared.choose", "if 2 || 2", "$ || true"},
	{"prepared.choose", "if 2 || 2", "first.Before(ended)"},
	{"lastEnd", "assign value", "$2"},
	{"state.evictFor", "case 3 && 2", "Compatible(e.Mode, p.Mode) && p.Mode != Pool"},
	{"state.evictFor", "case 3 && 2", "Compatible(e.Mode, p.Mode)"},
	{"state.lose", "assign target 5", "drop"},
	{"Document.holdsUp", "&& 2", "true"},
	{"state.lostMember", "|| 3", "false"},
	{"state.lostMember", "if 2 cond", "false && e != nil"},
	{"state.isLost", "case 2 value", "false"},
	{"state.isLost", "case 2 && 1", "true"},
	{"state.isLost", "case 2 && 2", "true"},
	{"state.isLost", "case 2 && 3", "true"},
	{"state.withMember", "&& 2", "true"},
	{"state.withMember", "assign 2", "drop"},
	{"state.withMember", "assign 3", "drop"},
	{"state.grantWaiter", "elem 4", "drop"},
	{"state.grantWaiter", "assign 6", "drop"},
	{"state.grant", "assign 5 elem 8", "drop"},
	{"state.waiter", "elem 4", "drop"},
	{"state.enqueue", "assign 6", "drop"},
	{"state.passClaims", "assign 2 target 2", "drop"},
	{"state.cutOff", "if 2 cond", "true"},
	{"Entry.add", "assign 10 target 2", "drop"},

	// Priorities.
	{"Waiter.rank", "cond", "false"},
	{"Waiter.rank", "stmt 2 value", "$2"},
	{"Waiter.rank", "/ 2", "2 * $"},
	{"Waiter.rank", "stmt 3 value", "$2"},
	{"Waiter.rank", "stmt 3 arg 2", "$1 + 0*aged"},
	{"Waiter.rank", "- 2", "0 * $"},
	{"Waiter.rank", "call 5 arg 2", "LowestPriority"},
	{"state.insert", "|| 1", "drop"},
	{"state.insert", "|| 2", "op <"},
	{"state.insert", "|| 2", "false"},
	{"state.insert", "|| 2", "true"},
	{"state.insert", "if stmt", "continue"},
	{"state.enqueue", "case 3 stmt", "index = len(s.doc.Waiters); s.doc.Waiters = append(s.doc.Waiters, w)"},
	{"state.enqueue", "assign 5 target 4", "drop"},
	{"state.enqueue", "assign 5 target 5", "drop"},
	{"state.waiter", "if && 1", "true"},
	{"state.waiter", "if cond", "false"},
	{"Promote.Apply", "&& 2", "drop"},
	{"Promote.Apply", "&& 1", "drop"},
	{"Promote.Apply", "cond", "false"},
	{"Promote.Apply", "|| 1", "drop"},
	{"Promote.Apply", "|| 2", "drop"},
	{"Promote.Apply", "for assign", "drop"},
	{"Promote.Apply", "for stmt 3", "drop"},

	// Acquire.
	{"Acquire.Apply", "cond", "$ && false"},
	{"Acquire.Apply", "stmt 3", "drop"},
	{"state.superseded", "cond", "$ && false"},
	{"state.superseded", "stmt 4 value", "false && $"},
	{"state.superseded", "stmt 4 && 2", "drop"},
	{"state.superseded", "stmt 4 && 3", "drop"},
	{"state.superseded", "stmt 4 && 4", "drop"},
	{"state.isLost", "return 3 && 1", "false"},
	{"skipsQueue", "|| 1", "drop"},
	{"skipsQueue", "|| 2", "drop"},
	{"state.grantOrQueue", "cond", "false"},
	{"state.grantOrQueue", "case 2 cond", "false"},
	{"state.grantOrQueue", "case 4 && 1", "false"},
	{"state.grantOrQueue", "case 4 || 2", "false"},
	{"state.grantOrQueue", "case 4 || 3", "false"},
	{"state.grantOrQueue", "case 6 cond", "false"},
	{"state.grantOrQueue", "case 8 && 1", "false"},
	{"state.grantOrQueue", "case 8 && 2", "drop"},
	{"state.grantOrQueue", "case 11 cond", "false"},
	{"state.grantOrQueue", "case 12 || 2", "drop"},
	{"state.grantOrQueue", "case 12 || 1", "drop"},
	{"state.grantedBefore", "stmt 3 && 3", "drop"},
	{"state.grant", "assign 7 value 3", "nil"},
	{"state.grant", "return value", "false"},
	{"state.grant", "return value", "w.LockID == op.LockID"},
	{"Stronger", "cond", "false"},
	{"Stronger", "return 2 value", "a"},
	{"Stronger", "return 2 value", "b"},
	{"state.holdFor", "assign 8", "drop"},
	{"state.holdFor", "stmt 6 || 2", "drop"},
	{"state.holdFor", "stmt 6 || 3", "drop"},
	{"state.holdFor", "stmt 6 || 4", "drop"},
	{"state.holdFor", "assign 11", "drop"},
	{"state.holdFor", "stmt 7 value", "$2"},
	{"state.nextFence", "value", "$1"},
	{"state.nextFence", "+ 2", "drop"},
	{"state.enqueue", "assign 11", "drop"},
	{"state.enqueue", "&& 2", "drop"},
	{"state.enqueue", "&& 1", "drop"},
	{"state.enqueue", "cond", "false && $3"},
	{"state.enqueue", "assign 5 target", "drop"},
	{"state.enqueue", "assign 5 target 2", "drop"},
	{"state.enqueue", "assign 5 target 3", "drop"},
	{"state.enqueue", "assign 9", "drop"},
	{"state.enqueue", "if 5 value", "$1"},
	{"state.enqueue", "if 5 cond", "true"},
	{"state.enqueue", "case 2 stmt 3 value", "0"},
	{"state.enqueue", "func 2 value", "false"},
	{"state.enqueue", "+ 2", "drop"},
	{"state.enqueue", "if 2 cond", "false"},
	{"state.waiter", "elem value", "Caller{LockID: op.LockID, Run: op.Run, Part: op.Part, Order: op.Order, Within: op.Within}"},
	{"state.waiter", "call 5", "op.WaiterTTL"},
	{"state.waiter", "if 4 cond", "false"},
	{"Acquire.OverdueAfter", "call", "$1"},

	// Parts and holds that end.
	{"Renew.Apply", "case 2 cond", "false"},
	{"state.downgrade", "if assign", "drop"},
	{"Leave.Apply", "|| 2", "drop"},
	{"Leave.Apply", "&& 2", "true"},
	{"Leave.Apply", "return 4 && 2", "drop"},
	{"Leave.Apply", "return 4 && 3", "drop"},
	{"Release.Apply", "&& 1", "false"},
	{"Release.Apply", "&& 1", "drop"},
	{"Release.Apply", "&& 2", "$2"},
	{"Release.Apply", "func 3 && 2", "true"},
	{"Release.Apply", "func 3 && 3", "drop"},
	{"Release.Apply", "if 4 cond", "true"},
	{"Release.Apply", "if 4 stmt 4", "drop"},
	{"Release.names", "&& 1", "e.BelongsTo($2)"},
	{"Release.names", "|| 2", "false"},
	{"Release.names", "stmt 2 value", "true"},
	{"Release.names", "case 3 value", "true"},
	{"Release.stopped", "|| 1", "drop"},
	{"Release.stopped", "&& 3", "drop"},
	{"Release.stopped", "&& 2", "drop"},
	{"state.recordRelease", "if && 2", "false"},
	{"state.recordRelease", "func 2 value", "false"},
	{"state.recordRelease", "stmt 4 arg 2", "2 * $"},
	{"Release.Apply", "assign 4 arg 2", "2 * $"},
	{"Withdraw.Apply", "&& 2", "drop"},
	{"Withdraw.Apply", "&& 1", "w.SamePart(&op.Caller)"},
	{"Withdraw.Apply", "&& 1", "w.LockID == op.LockID && w.Order == op.Order"},

	// Searches in a document.
	{"Document.Keeps", "&& 2", "drop"},
	{"Entry.Forfeited", "&& 3", "true"},
	{"Entry.Forfeited", "&& 3", "false"},
	{"Document.LossEvidence", "|| 1", "drop"},
	{"Evidence.isLoss", "&& 1", "drop"},
	{"Evidence.isLoss", "&& 2", "drop"},
	{"Evidence.isLoss", "&& 3", "drop"},
	{"Evidence.isLossSince", "&& 1", "drop"},
	{"Evidence.isLossSince", "&& 2", "drop"},
	{"Evidence.isLossSince", "&& 3", "$1 != $2"},
	{"Document.LostBefore", "&& 1", "false"},
	{"plain", "&& 1", "drop"},
	{"Document.SupersededBy", "&& 2", "drop"},
	{"Document.SupersededBy", "&& 3", "op >"},
	{"Document.barred", "cond", "$ && false"},
	{"Document.barred", "elem 2", "drop"},
	{"Document.AllBars", "&& 2", "false"},
	{"Document.AllBars", "if 2 && 1", "false"},
	{"Entry.keeps", "&& 2", "drop"},
	{"Document.SupersededBy", "stmt 3 cond", "$ && false"},
	{"Bar.matches", "|| 2", "drop"},
	{"Bar.matches", "&& 1", "drop"},
	{"Bar.matches", "&& 2", "drop"},
	{"Bar.matches", "&& 3", "drop"},
	{"Bar.matches", "&& 3", "$1 == $2"},
	{"Bar.matches", "&& 4", "true"},
	{"Bar.matches", "&& 4", "op <"},
	{"isInside", "|| 2", `rest != ""`},
	{"isInside", "value", "$0($2, $1)"},
	{"Bar.covers", "&& 1", "drop"},
	{"Bar.covers", "&& 2", "drop"},
	{"Bar.covers", "&& 3", "$1 == $2"},
	{"Bar.covers", "&& 4", "true"},
	{"Document.LaterOrder", "|| 2", "false"},
	{"Document.LaterOrder", "|| 1", "drop"},
	{"Document.LaterOrder", "for 2 && 2", "false"},
	{"Document.LaterOrder", "&& 1", "e.BelongsTo(c.LockID)"},

	// Runs and bars.
	{"Document.otherRun", "for cond", "$1 && false"},
	{"Document.otherRun", "call 3", "drop"},
	{"Document.otherRun", "for 3 cond", "false && $3"},
	{"Document.otherRun", "assign && 2", "true"},
	{"Document.otherRun", "assign && 2", "false"},
	{"state.takeOver", "assign 9 target 3", "drop"},
	{"state.takeOver", "assign 9 target 4", "drop"},
	{"state.takeOver", "assign 9 target 5", "drop"},
	{"state.takeOver", "assign 9", "e.Run, e.Fence, e.LeastFence, e.FirstOrder, e.Order, e.Regained = run, fence, fence, 0, 0, 0"},
	{"state.takeOver", "case 3 value", "$0($1, e)"},
	{"state.takeOver", "func 3 value", "false"},
	{"state.takeOver", "if 4 assign", "drop"},
	{"state.takeOver", "func 4 value", "false"},
	{"state.takeOver", "if 4 && 1", "drop"},
	{"state.takeOver", "func 2 value", "false"},
	{"state.cutOff", "|| 1", "drop"},
	{"state.cutOff", "|| 2", "drop"},
	{"state.cutOff", "assign 2 value", "e.CutOff"},
	{"state.cutOff", "if 2 stmt", "drop"},
	{"state.cutOff", "call", "drop"},
	{"state.cutOffAll", "|| 1", "drop"},
	{"state.cutOffAll", "|| 2", "drop"},
	{"state.cutOffAll", "func value", "false"},
	{"state.addBar", "cond", "o == nil"},
	{"state.addBar", "func value", "false"},
	{"state.addBar", "assign 5 target 2", "drop"},
	{"state.addBar", "assign 4 value", "$2[:0]"},
	{"state.addBar", "if 3 cond", "true"},
	{"state.addBar", "stmt 6 arg 3", "$ + 1"},
	{"state.addBar", "if 3 arg 3", "$ + 1"},
	{"with", "value value", "false"},
	{"with", "return 2 arg", "$0([]Bar{$2}, $1...)"},
	{"state.end", "stmt 3", "drop"},
	{"state.evictFor", "func assign 3", "drop"},
	{"state.supersede", "assign 3", "drop"},
	{"state.endEntries", "assign", "drop"},
	{"Release.Apply", "func value", "false"},
	{"Release.Apply", "|| 1", "drop"},
	{"Release.Apply", "|| 2", "true"},
	{"Entry.add", "for assign", "_ = b"},
	{"state.drawFence", "cond", "e.State != StateKept"},
	{"state.drawFence", "&& 1", "drop"},
	{"state.drawFence", "if 3 cond", "$ || true"},
	{"state.drawFence", "if 3 cond", "$ && false"},
	{"state.drawFence", "stmt 4", "drop"},
	{"Raise.Apply", "stmt 4", "drop"},
	{"Raise.Apply", "if 2 cond", "$ || true"},
	{"Raise.Apply", "if 2 stmt", "drop"},
	{"Raise.Apply", "cond", "$ && false"},
	{"Raise.Apply", "func value", "false && $"},
	{"Raise.Apply", "stmt 6 value", "$1"},
	{"Raise.replacedRuns", "arg 2", "drop"},
	{"Raise.undoes", "&& 1", "len($1) < 0"},
	{"Raise.undoes", "&& 2", "drop"},
	{"Raise.undoes", "&& 2", "$1 == $2"},
	{"Raise.undoes", "&& 3", "$1"},
	{"Raise.StillRunning", "&& 2", "drop"},
	{"Raise.Apply", "if 3 cond", "false"},
	{"Verify.Apply", "cond", "$ && false"},
	{"Verify.Apply", "stmt 4", "drop"},
	{"Verify.Apply", "|| 1 arg 2", "$ + 1"},

	// What every write does.
	{"begin", "func value", "false"},
	{"begin", "if 2 value", "now"},
	{"begin", "if 2 cond", "true"},
	{"state.end", "&& 2", "drop"},
	{"state.end", "call", "drop"},
	{"state.predecessor", "|| 1", "drop"},
	{"state.predecessor", "|| 2", "drop"},
	{"state.predecessor", "for arg arg 2", "drop"},
	{"state.predecessor", "for arg arg 3", "drop"},
	{"state.predecessor", "elem 2 value", "$1.Fence"},
	{"state.addEvidence", "assign 2", "drop"},
	{"state.addEvidence", "assign 3 arg arg 2", "$ + 1"},
	{"state.dropDead", "|| 1", "drop"},
	{"state.idleAt", "assign 3", "_ = e"},
	{"state.renewKept", "call 2", "$2"},
	{"state.drain", "+ 1", "drop"},
	{"state.drain", "if 2 cond", "false"},
	{"state.drain", "target", "drop"},
	{"state.drain", "target 2", "drop"},
	{"state.claim", "&& 2", "drop"},
	{"state.removeWaiters", "call 2", "_ = w"},

	// Losses that are found out after a commit.
	{"state.recordMissed", "|| 1", "drop"},
	{"state.recordMissed", "|| 2", "drop"},
	{"state.recordMissed", "|| 3", "drop"},
	{"state.recordMissed", "for || 1", "drop"},
	{"state.recordMissed", "for || 2", "drop"},
	{"state.recordMissed", "&& 2", "false"},
	{"state.recordMissed", "assign 3 arg 2", "$ + 1"},
	{"Release.Apply", "stmt 2", "drop"},
	{"Release.Apply", "if 4 call 2", "s.recordMissed($1); $"},
	{"state.recordMissed", "elem 8", "drop"},
	{"Missed.Recent", "value", "true"},
	{"Missed.Recent", "call 2 x", "$1.At"},
	{"begin", "return 2 value", "m.Order < 0"},
	{"state.attn", "if cond", "false"},
	{"state.idleAt", "call 3", "s.doc.Missed[i].ReleasedAt"},

	// What parts share.
	{"Entry.waitsForMore", "&& 2", "drop"},
	{"Entry.waitsForMore", "&& 1", "$ || true"},
	{"Entry.add", "value", "$1"},
	{"Entry.add", "value 2", "$1"},
	{"Entry.add", "|| 1", "drop"},
	{"Entry.add", "|| 2", "drop"},
	{"Entry.add", "&& 1", "drop"},
	{"Entry.add", "assign 3", "drop"},
	{"Entry.add", "case 2 target", "drop"},
	{"Entry.add", "case 2 target 2", "drop"},
	{"Entry.add", "tag", "0"},
	{"Entry.add", "if 2 target 2", "drop"},
	{"Entry.add", "if 2 target", "drop"},
	{"Entry.add", "if 2 cond", "true"},
	{"Entry.add", "stmt 5 value", "$1"},
	{"Entry.add", "stmt 6 value", "$2"},
	{"state.merge", "|| 2", "drop"},
	{"state.merge", "assign 5 target", "drop"},
	{"state.merge", "&& 1", "drop"},
	{"state.merge", "func 2 value", "false"},
	{"state.mergeEnded", "&& 2", "drop"},
	{"state.mergeEnded", "&& 3", `part != ""`},
	{"state.renewKept", "&& 1", "drop"},
	{"Result.HoldsEnded", "&& 3", "true"},

	// Grants.
	{"allowsJoin", "value", "true"},
	{"confirms", "&& 1", "drop"},
	{"confirms", "&& 2", "$ || true"},
	{"confirms", "&& 3", "drop"},
	{"Entry.roomFor", "return 2 && 1", "drop"},
	{"Acquire.Apply", "if 3 call", "drop"},
	{"state.isLost", "case 2 cond", "false"},
	{"state.isLost", "|| 2", "drop"},
	{"state.isLost", "&& 2", "p != nil && p.ID != op.Upgrades && p.ID != op.Call"},
	{"state.isLost", "|| 2", "$1"},
	{"state.isLost", "return 3 || 2", "false"},
	{"state.isLost", "return 3 || 2", "$2"},
	{"state.grantOrQueue", "assign 6 || 2 && 2", "$ || true"},
	{"state.grantOrQueue", "assign 6 func value", "view != nil && w.LockID != \"\""},
	{"state.grantOrQueue", "case 9 || 1", "drop"},
	{"state.grantOrQueue", "case 9 || 2 && 1", "$ || true"},
	{"state.grantOrQueue", "case 9 || 2", "$1"},
	{"state.grantedBefore", "&& 3", "drop"},
	{"state.grant", "assign 3", "drop"},
	{"state.grant", "stmt 4", "drop"},
	{"state.grant", "assign 7 target 3", "drop"},
	{"state.grant", "stmt 13", "drop"},
	{"state.grant", "stmt 15", "drop"},
	{"state.grant", "case assign", "drop"},
	{"state.grant", "stmt 18 value 2", "$2"},
	{"state.grant", "if 4 assign 2", "drop"},
	{"state.grant", "if 4 cond", "true"},
	{"state.grant", "stmt 17", "drop"},
	{"state.holdFor", "assign 4", "drop"},
	{"state.holdFor", "stmt 6 || 1", "drop"},
	{"state.supersede", "cond", "false"},
	{"state.supersede", "case 2 cond", "false"},
	{"state.supersede", "|| 5", "drop"},
	{"state.supersede", "|| 3", "drop"},
	{"state.supersede", "assign 5", "drop"},
	{"state.supersede", "func && 2", "$ || true"},
	{"state.supersede", "return value", "madeWithPart && false"},
	{"nextGrant", "case cond", "!w.Waits(d.At)"},
	{"nextGrant", "case cond", "false"},
	{"nextGrant", "case 2 cond", "true"},
	{"nextGrant", "case 3 cond", "false"},
	{"nextGrant", "case 3 cond", "true"},
	{"state.settle", "for value", "1"},
	{"state.settle", "for value", "2 * $"},
	{"state.grantWaiter", "stmt 2", "drop"},
	{"state.grantWaiter", "assign 2", "drop"},
	{"state.grantWaiter", "literal arg arg", "$1"},
	{"state.grantWaiter", "elem 8", "drop"},
	{"state.grantWaiter", "cond", "true"},
	{"state.grantWaiter", "stmt 10", "drop"},
	{"state.grantWaiter", "stmt 12", "drop"},
	{"Waiter.holdRequest", "elem 10", "drop"},
	{"Waiter.holdRequest", "elem 8", "drop"},
	{"state.passClaims", "&& 2", "drop"},
	{"state.passClaims", "assign 2 target", "drop"},
	{"state.attn", "case 2 cond", "true"},
	{"state.attn", "case 2 cond", "false"},
	{"state.attn", "if 2 cond", "false"},
	{"state.end", "cond", "false"},
	{"state.end", "stmt 2", "drop"},
	{"state.evictFor", "elem", "drop"},
	{"state.evictFor", "value", "false"},
	{"state.evictFor", "&& 2", "drop"},
	{"state.grantOrQueue", "case 2 stmt 2", "drop"},
	{"state.evictFor", "&& 3", "drop"},
	{"state.evictFor", "assign 8", "drop"},
	{"state.evictFor", "if 2 value", "$2"},
	{"state.evictFor", "stmt 4 arg", "1 << 40"},
	{"state.evictFor", "func || 2", "drop"},
	{"state.evictFor", "case 2 && 2", "drop"},
	{"state.evictFor", "case 2 cond", "false"},
	{"state.evictFor", "case 3 && 2", "drop"},
	{"state.evictFor", "case 3 || 2", "drop"},
	{"state.evictFor", "if 3 cond", "true"},
	{"state.evictFor", "if 3 cond", "false"},
	{"state.lose", "assign 3", "drop"},
	{"state.lose", "cond", "false"},
	{"state.lose", "stmt 3", "drop"},
	{"state.idleAt", "!= 2", "StateKept"},

	// Ends.
	{"Renew.Apply", "for call 2", "$2"},
	{"Renew.Apply", "case 3 stmt 3", "drop"},
	{"Renew.Apply", "if 3 target 2", "drop"},
	{"state.downgrade", "func value", "false"},
	{"state.downgrade", "|| 3 && 2", "$ || true"},
	{"state.downgrade", "|| 3", "$2 && false"},
	{"state.downgrade", "|| 2 && 2", "part == latest"},
	{"state.downgrade", "|| 2", "$ && false"},
	{"Leave.Apply", "case 2 && 2", "drop"},
	{"Leave.Apply", "return 4 && 2", "drop"},
	{"Leave.Apply", "func 3 value", "w.SamePart(&op.Caller)"},
	{"Leave.Apply", "func 3 value", "w.LockID == op.LockID && w.Order <= op.Order"},
	{"Leave.Apply", "&& 1", "e.LockID == op.LockID"},
	{"state.leaveWaiting", "&& 4", "drop"},
	{"state.leaveWaiting", "cond", "true"},
	{"state.leaveWaiting", "assign 3 target 2", "drop"},
	{"TakeBack.Apply", "|| 2", "drop"},
	{"TakeBack.Apply", "|| 3", "drop"},
	{"TakeBack.Apply", "return 2 value", "false"},
	{"TakeBack.Apply", "func 2 value", "false"},
	{"TakeBack.Apply", "func 2 value", "w.SamePart(&op.Caller)"},
	{"Release.Apply", "if 2 cond", "false"},
	{"state.recordForced", "&& 1", "drop"},
	{"state.recordForced", "cond", "true"},
	{"state.recordForced", "case 2 cond", "false"},
	{"state.recordRelease", "cond", "$2"},
	{"state.recordRelease", "&& 4", "drop"},
	{"state.recordRelease", "&& 2", "drop"},
	{"state.recordRelease", "&& 3", "true"},
	{"Document.Lost", "&& 2", "false"},
	{"Document.Lost", "call 3", "drop"},
	{"Document.Lost", "case 2 && 1", "false"},
	{"Document.Lost", "case 2 && 2", "true"},
	{"Document.Lost", "|| 2", "false"},
	{"state.takeOver", "if 4 assign 3", "_ = was"},
	{"Raise.Apply", "stmt 11", "drop"},
	{"Verify.Apply", "stmt 5", "drop"},
	{"Verify.Apply", "|| 2", "drop"},
	{"Verify.Apply", "|| 2 arg 3", "time.Time{}"},
	{"state.isLost", "return 3 arg 3", "time.Time{}"},
	{"state.grant", "if 4 arg 3", "time.Time{}"},
}
