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
)

// mutant breaks one rule: in the function, the text old, which occurs there once, becomes new.
type mutant struct{ function, old, new string }

// TestMutants_EachIsNoticedByAScenario breaks one rule at a time and expects a scenario to fail. All
// mutants are built into one test program: each is a copy of its function, and the original function
// calls the copy if RULES_MUTANT selects it.
func TestMutants_EachIsNoticedByAScenario(t *testing.T) {
	t.Parallel()
	program := buildMutants(t)
	out, err := playMutant(t, program, 0)
	require.NoError(t, err, out)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, m := range mutants {
		t.Run(fmt.Sprintf("%s %q", m.function, m.old), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			out, err := playMutant(t, program, i+1)
			require.Error(t, err, "no scenario notices that %q becomes %q in %s", m.old, m.new, m.function)
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

// buildMutants builds the tests of this package with all mutants.
func buildMutants(t *testing.T) (program string) {
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
	found := make([]bool, len(mutants))
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			add(name, mutate(t, name, found))
		}
	}
	for i, m := range mutants {
		require.True(t, found[i], "there is no function %s", m.function)
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

// mutate returns the source of a file with the mutants of its functions.
func mutate(t *testing.T, name string, found []bool) string {
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
		text, receiver := source[offset(f.Pos()):offset(f.End())], ""
		if f.Recv != nil {
			typ := strings.TrimPrefix(source[offset(f.Recv.List[0].Type.Pos()):offset(f.Recv.List[0].Type.End())], "*")
			receiver = typ + "."
		}
		for i, m := range mutants {
			if m.function != receiver+f.Name.Name {
				continue
			}
			found[i] = true
			require.Equal(t, 1, strings.Count(text, m.old), "%s contains %q", m.function, m.old)
			mutated := fmt.Sprintf("%sMutant%d", f.Name.Name, i+1)
			copies.WriteString("\n" + strings.Replace(strings.Replace(text, m.old, m.new, 1), f.Name.Name+"(", mutated+"(", 1) + "\n")
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
	{"Covers", `have == Exclusive || want == Shared`, `have == want`},
	{"Compatible", `a == Shared && b == Shared`, `a == Shared || b == Shared`},
	{"Entry.BelongsTo", ` && !e.CutOff`, ``},
	{"Entry.Counts", `e.ExpiresAt.After(now)`, `true`},
	{"Entry.Counts", `e.ExpiresAt.After(now)`, `false`},
	{"Entry.Counts", `!e.BelongsTo(p.LockID)`, `true`},
	{"Entry.Counts", `!p.enclosedBy(e)`, `true`},
	{"Party.enclosedBy", ` && e.State == StateKept`, ``},
	{"Document.InTheWay", `int64(len(others)) >= p.Limit`, `false`},
	{"allowsJoin", `p.Limit = 0`, ``},

	// Acquire.
	{"Acquire.Apply", `; other {`, `; other && false {`},
	{"Acquire.Apply", `s.takeOver(op.LockID, op.Label)`, ``},
	{"state.superseded", `overtaken {`, `overtaken && false {`},
	{"state.superseded", `p != nil &&`, `false && p != nil &&`},
	{"state.superseded", ` && p.Alive(s.now)`, ``},
	{"state.superseded", ` && p.ID != op.Call`, ``},
	{"state.superseded", ` && p.ID != op.Upgrades`, ``},
	{"state.isLost", `op.Persist && s.doc`, `false && s.doc`},
	{"skipsQueue", `v.holds(p.LockID, func(*Entry) bool { return true }) || heldByEnclosing(v, p)`, `heldByEnclosing(v, p)`},
	{"skipsQueue", `v.holds(p.LockID, func(*Entry) bool { return true }) || heldByEnclosing(v, p)`, `v.holds(p.LockID, func(*Entry) bool { return true })`},
	{"state.grantOrQueue", `case tombstone != nil:`, `case false:`},
	{"state.grantOrQueue", `case s.isLost(op):`, `case false:`},
	{"state.grantOrQueue", `case op.Refresh && (`, `case false && (`},
	{"state.grantOrQueue", `(claim == nil && index < 0)`, `false`},
	{"state.grantOrQueue", `(claim != nil && claim.Alive(s.now))`, `false`},
	{"state.grantOrQueue", `case s.grantedBefore(op):`, `case false:`},
	{"state.grantOrQueue", `case s.covered(op.LockID, op.Mode) && `, `case false && `},
	{"state.grantOrQueue", `&& allowsJoin(s.doc, op.Party())`, ``},
	{"state.grantOrQueue", `case !op.Queue:`, `case false:`},
	{"state.grantOrQueue", `s.enqueue(op, index, ahead || claim != nil)`, `s.enqueue(op, index, ahead)`},
	{"state.grantOrQueue", `s.enqueue(op, index, ahead || claim != nil)`, `s.enqueue(op, index, claim != nil)`},
	{"state.grantedBefore", `p.ID == op.Call && p.Alive(s.now)`, `p.ID == op.Call`},
	{"state.grant", `c.ClaimedAt, c.Predecessor`, `c.ClaimedAt, nil`},
	{"state.grant", `return w.LockID == op.LockID && w.Part == op.Part`, `return false`},
	{"state.grant", `return w.LockID == op.LockID && w.Part == op.Part`, `return w.LockID == op.LockID`},
	{"Stronger", `Covers(b, a)`, `Covers(a, b)`},
	{"state.holdFor", `hold.LeastFence = max(hold.LeastFence, e.LeastFence)`, ``},
	{"state.holdFor", `op.NewFence || `, ``},
	{"state.holdFor", `s.doc.Fence > hold.Fence || `, ``},
	{"state.holdFor", ` || again {`, ` {`},
	{"state.holdFor", `s.doc.Fence = hold.Fence`, ``},
	{"state.holdFor", `cmp.Or(hold.FirstFence, hold.Fence)`, `hold.Fence`},
	{"state.nextFence", `max(s.doc.Fence+1, s.now.UnixMilli())`, `s.doc.Fence + 1`},
	{"state.nextFence", `s.doc.Fence+1`, `s.doc.Fence`},
	{"state.enqueue", `w.Saga = claim.Saga`, ``},
	{"state.enqueue", `index < 0 && !ahead && `, `index < 0 && `},
	{"state.enqueue", `index < 0 && !ahead && `, `!ahead && `},
	{"state.enqueue", `index < 0 && !ahead && `, `false && `},
	{"state.enqueue", `w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead`, `w.ClaimTTL, w.Ahead = was.ClaimTTL, was.Ahead`},
	{"state.enqueue", `w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead`, `w.Since, w.Ahead = was.Since, was.Ahead`},
	{"state.enqueue", `w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead`, `w.Since, w.ClaimTTL = was.Since, was.ClaimTTL`},
	{"state.enqueue", `w.Ahead = true`, ``},
	{"state.enqueue", `min(2*max(op.ClaimTTL, claim.ClaimTTL), op.LongestClaim())`, `2 * max(op.ClaimTTL, claim.ClaimTTL)`},
	{"state.enqueue", `if !claim.Alive(s.now)`, `if true`},
	{"state.enqueue", `len(filter(s.doc.Waiters, func(w *Waiter) bool { return w.Ahead }))`, `0`},
	{"state.enqueue", `e.BelongsTo(op.LockID) && e.Part == op.Part && e.State == StateClaimed`, `false`},
	{"state.enqueue", `int64(index) + 1`, `int64(index)`},
	{"state.enqueue", "if op.Refresh {\n\t\t\tw.Hold", "if false {\n\t\t\tw.Hold"},
	{"state.waiter", `Saga: op.Saga, `, ``},
	{"state.waiter", `ms(op.OverdueAfter())`, `ms(op.WaiterTTL)`},
	{"state.waiter", `if op.HoldOnly`, `if false`},
	{"Acquire.OverdueAfter", `min(2*op.NextRefresh, op.WaiterTTL)`, `2 * op.NextRefresh`},

	// Parts and holds that end.
	{"Renew.Apply", `op.TTL > 0 && !p.Alive(s.now)`, `false`},
	{"state.downgrade", `s.downgraded = append(s.downgraded, *e)`, ``},
	{"Leave.Apply", `(!e.CutOff || op.Label != "")`, `!e.CutOff`},
	{"Leave.Apply", `(!e.CutOff || op.Label != "")`, `true`},
	{"Leave.Apply", `own(e) && e.Order == op.Order && !op.QueueOnly`, `own(e) && !op.QueueOnly`},
	{"Leave.Apply", ` && !op.QueueOnly`, ``},
	{"Release.Apply", `!op.stopped(&e) && (e`, `false && (e`},
	{"Release.Apply", `!op.stopped(&e) && (e`, `(e`},
	{"Release.Apply", `e.State == StateDraining || `, ``},
	{"Release.Apply", `(op.Label == "" || w.Label == op.Label)`, `true`},
	{"Release.Apply", ` && w.Order <= op.Order`, ``},
	{"Release.Apply", `if op.FirstFence == 0`, `if true`},
	{"Release.Apply", `s.recordRelease(&op)`, ``},
	{"Release.names", `return e.LockID == op.LockID && e`, `return e.BelongsTo(op.LockID) && e`},
	{"Release.names", `(op.Label != "" && e.Label != op.Label)`, `false`},
	{"Release.names", `	}
	return e.Order <= op.Order`, `	}
	return true`},
	{"Release.names", `case op.FirstFence > 0:
		return e.FirstFence == op.FirstFence`, `case op.FirstFence > 0:
		return true`},
	{"Release.stopped", `op.Now || `, ``},
	{"Release.stopped", ` && e.Order == op.Order`, ``},
	{"Release.stopped", `e.Part == *op.Leaving && `, ``},
	{"state.recordRelease", `was.Order >= op.Order`, `false`},
	{"state.recordRelease", `old.LockID == op.LockID && old.Label == op.Label`, `false`},
	{"state.recordRelease", `MaxReleases)`, `2*MaxReleases)`},
	{"Release.Apply", `MaxForced)`, `2*MaxForced)`},
	{"Withdraw.Apply", ` && w.Verdict == ""`, ``},
	{"Withdraw.Apply", ` && w.Order == op.Order`, ``},
	{"Withdraw.Apply", ` && w.Part == op.Part`, ``},

	// Searches in a document.
	{"Document.Keeps", ` && k.FirstOrder <= order`, ``},
	{"Entry.Forfeited", `(e.PositionExpiresAt == nil || !e.PositionExpiresAt.After(now))`, `true`},
	{"Entry.Forfeited", `(e.PositionExpiresAt == nil || !e.PositionExpiresAt.After(now))`, `false`},
	{"Document.LossEvidence", `e.isLoss(lockID, label) || `, ``},
	{"Evidence.isLoss", `e.LockID == lockID && `, ``},
	{"Evidence.isLoss", ` && e.To == ""`, ``},
	{"Evidence.isLoss", ` && (label == "" || e.Label == label)`, ``},
	{"Evidence.isLossSince", `!since.IsZero() && `, ``},
	{"Evidence.isLossSince", `!e.At.Before(since) && `, ``},
	{"Evidence.isLossSince", `e.isLoss(lockID, "")`, `(lockID != "")`},
	{"Document.LostBefore", `!began.IsZero() && `, `false && `},
	{"plain", `label == "" && `, ``},
	{"Document.SupersededBy", ` && o.Label == r.Label`, ``},
	{"Document.SupersededBy", `o.Order >= r.Order`, `o.Order > r.Order`},
	{"Document.barred", `b.matches(r)`, `b.matches(r) && false`},
	{"Document.barred", `r.LockID, r.Within`, `r.LockID`},
	{"Document.AllBars", ` && e.keeps(lockID)`, ` && false`},
	{"Document.AllBars", `b.LockID == lockID && `, `false && `},
	{"Entry.keeps", ` && e.BelongsTo(lockID)`, ``},
	{"Document.SupersededBy", `d.LaterOrder(r.LockID, r.Part, r.Order); ok`, `d.LaterOrder(r.LockID, r.Part, r.Order); ok && false`},
	{"Bar.matches", ` || b.LockID == r.Within`, ``},
	{"Bar.matches", `(b.LockID == r.LockID || b.LockID == r.Within) && `, ``},
	{"Bar.matches", `b.Label == r.Label && `, ``},
	{"Bar.matches", `isInside(r.Saga, b.Saga) && `, ``},
	{"Bar.matches", `isInside(r.Saga, b.Saga)`, `r.Saga == b.Saga`},
	{"Bar.matches", `r.Order <= b.Order`, `true`},
	{"Bar.matches", `r.Order <= b.Order`, `r.Order < b.Order`},
	{"isInside", `(rest == "" || rest[0] == '/')`, `(rest == "" || rest != "")`},
	{"isInside", `strings.CutPrefix(saga, outer)`, `strings.CutPrefix(outer, saga)`},
	{"Bar.covers", `b.LockID == o.LockID && `, ``},
	{"Bar.covers", `b.Label == o.Label && `, ``},
	{"Bar.covers", `isInside(o.Saga, b.Saga)`, `o.Saga == b.Saga`},
	{"Bar.covers", `o.Order <= b.Order`, `true`},
	{"Document.LaterOrder", `(e.Order == order && e.State == StateDraining)`, `false`},
	{"Document.LaterOrder", `e.Order > order || `, ``},
	{"Document.LaterOrder", `w.Order > order`, `false`},
	{"Document.LaterOrder", `e.Part == part && e.State != StateKept`, `e.State != StateKept`},

	// Runs and bars.
	{"Document.otherRun", `e.Label == label && e.To != ""`, `false`},
	{"Document.otherRun", `(e.Holds() || e.Alive(d.At))`, `e.Alive(d.At)`},
	{"Document.otherRun", `w.LockID == lockID && foreign(w.Label)`, `false`},
	{"Document.otherRun", `(of == "" || of != takeOver)`, `true`},
	{"Document.otherRun", `(of == "" || of != takeOver)`, `false`},
	{"state.takeOver", `e.LeastFence, e.FirstOrder, e.Order = label, fence, fence, 0, 0`, `e.FirstOrder, e.Order = label, fence, 0, 0`},
	{"state.takeOver", `e.FirstOrder, e.Order = label, fence, fence, 0, 0`, `e.Order = label, fence, fence, 0`},
	{"state.takeOver", `e.FirstOrder, e.Order = label, fence, fence, 0, 0`, `e.FirstOrder = label, fence, fence, 0`},
	{"state.takeOver", `e.Order = label, fence, fence, 0, 0`, `e.Order, e.Regained = label, fence, fence, 0, 0, 0`},
	{"state.takeOver", `s.cutOff(e)...`, `e`},
	{"state.takeOver", `w.LockID == lockID && foreign(w.Label)`, `false`},
	{"state.takeOver", `s.changed = true`, ``},
	{"state.takeOver", `b.LockID == lockID && b.Label != label`, `false`},
	{"state.takeOver", `b.LockID == lockID && b.Label != label`, `b.Label != label`},
	{"state.takeOver", `return b.Label != label`, `return false`},
	{"state.cutOff", `e.State == StateClaimed || `, ``},
	{"state.cutOff", ` || !e.Alive(s.now)`, ``},
	{"state.cutOff", `e.CutOff, e.Mode = true, Exclusive`, `e.Mode = Exclusive`},
	{"state.cutOff", `e.CutOff, e.Mode = true, Exclusive`, `e.CutOff = true`},
	{"state.cutOff", `s.recordEnded(e)`, ``},
	{"state.cutOffAll", `e.State == StateKept || `, ``},
	{"state.cutOffAll", `e.CutOff || `, ``},
	{"state.cutOffAll", `return which(w.Request())`, `return false`},
	{"state.addBar", `o.covers(&b)`, `o == nil`},
	{"state.addBar", `return b.covers(o)`, `return false`},
	{"state.addBar", `keeper, e.Bars = i, nil`, `keeper = i`},
	{"state.addBar", `bars = append(bars, e.Bars...)`, `bars = e.Bars[:0]`},
	{"state.addBar", `if keeper < 0 {`, `if true {`},
	{"state.addBar", `with(bars, b, MaxHoldBars)`, `with(bars, b, MaxHoldBars+1)`},
	{"state.addBar", `b, MaxBars)`, `b, MaxBars+1)`},
	{"with", `b.covers(o)`, `false`},
	{"with", `append(rest, b)`, `append([]Bar{b}, rest...)`},
	{"state.end", `s.moveBars()`, ``},
	{"state.evictFor", `s.homeless = append(s.homeless, e.Bars...)`, ``},
	{"state.supersede", `s.homeless = append(s.homeless, e.Bars...)`, ``},
	{"state.endEntries", `s.homeless = append(s.homeless, e.Bars...)`, ``},
	{"Release.Apply", `op.FirstFence > 0 || b.Order > op.Order`, `false`},
	{"Release.Apply", `op.FirstFence > 0 || `, ``},
	{"Release.Apply", `b.Order > op.Order`, `true`},
	{"Entry.add", `e.Bars = with(e.Bars, b, MaxHoldBars)`, `_ = b`},
	{"state.drawFence", `!e.keeps(lockID)`, `e.State != StateKept`},
	{"state.drawFence", `e.BelongsTo(lockID) && `, ``},
	{"state.drawFence", `if !running {`, `if !running || true {`},
	{"state.drawFence", `if !running {`, `if !running && false {`},
	{"state.drawFence", `s.doc.Fence = max(s.doc.Fence, fence)`, ``},
	{"Raise.Apply", `s.changed = true`, ``},
	{"Raise.Apply", `if s.addBar(op.bar()) {`, `if s.addBar(op.bar()) || true {`},
	{"Raise.Apply", `s.drawFence(op.LockID)`, ``},
	{"Raise.Apply", `; other {`, `; other && false {`},
	{"Raise.Apply", `return op.undoes(r, replaced)`, `return false && op.undoes(r, replaced)`},
	{"Raise.Apply", `slices.Concat(known.Evidence, s.evidence)`, `known.Evidence`},
	{"Raise.replacedRuns", `, op.TakeOver)`, `)`},
	{"Raise.undoes", `slices.Contains(replaced, r.Label) && `, `len(replaced) < 0 && `},
	{"Raise.undoes", `isInside(r.Saga, op.Saga) && `, ``},
	{"Raise.undoes", `isInside(r.Saga, op.Saga) && `, `r.Saga == op.Saga && `},
	{"Raise.undoes", ` || r.Within == op.LockID`, ``},
	{"Raise.StillRunning", `e.CutOff && e.Alive(d.At)`, `e.CutOff`},
	{"Raise.Apply", `len(op.StillRunning(&known)) > 0`, `false`},
	{"Verify.Apply", `if other {`, `if other && false {`},
	{"Verify.Apply", `s.takeOver(op.LockID, op.Label)`, ``},
	{"Verify.Apply", `op.Used`, `op.Used + 1`},

	// What every write does.
	{"begin", `return !w.ExpiresAt.After(now)`, `return false`},
	{"begin", `now.Add(-Retention)`, `now`},
	{"begin", `d.EvidenceSince.IsZero()`, `true`},
	{"state.end", ` && !s.changed`, ``},
	{"state.end", `s.settle()`, ``},
	{"state.predecessor", `e.CreatedAt != nil || `, ``},
	{"state.predecessor", ` || e.State == StateDraining`, ``},
	{"state.predecessor", `s.downgraded, `, ``},
	{"state.predecessor", `, s.result.Expired`, ``},
	{"state.predecessor", `e.FirstFence`, `e.Fence`},
	{"state.addEvidence", `s.doc.EvidenceSince = Later(s.doc.EvidenceSince, s.doc.Evidence[over-1].At)`, ``},
	{"state.addEvidence", `MaxEvidence), s`, `MaxEvidence+1), s`},
	{"state.dropDead", `e.Forfeited(s.now) || `, ``},
	{"state.idleAt", `at = Later(at, e.ExpiresAt)`, `_ = e`},
	{"state.renewKept", `Later(e.ExpiresAt, expiry(s.now, e.TTL))`, `expiry(s.now, e.TTL)`},
	{"state.drain", `2*ms(e.TTL) + EndlessTTL`, `EndlessTTL`},
	{"state.drain", `end.Before(e.ExpiresAt)`, `false`},
	{"state.drain", `e.State, e.ID = StateDraining, drainingID(e.ID)`, `e.ID = drainingID(e.ID)`},
	{"state.drain", `e.State, e.ID = StateDraining, drainingID(e.ID)`, `e.State = StateDraining`},
	{"state.claim", ` && !c.Forfeited(s.now)`, ``},
	{"state.removeWaiters", `s.recordEnded(asEntry(&w))`, `_ = w`},

	// Losses that are found out after a commit.
	{"state.recordMissed", `!op.Committed || `, ``},
	{"state.recordMissed", `op.FirstFence > 0 || `, ``},
	{"state.recordMissed", ` || op.Label == ""`, ``},
	{"state.recordMissed", `!e.isLoss(op.LockID, op.Label) || `, ``},
	{"state.recordMissed", `e.Order > op.Order || `, ``},
	{"state.recordMissed", `e.Number <= k.Regained`, `false`},
	{"state.recordMissed", `MaxMissed)`, `MaxMissed+1)`},
	{"Release.Apply", `s.recordMissed(&op)`, ``},
	{"Release.Apply", `s.recordRelease(&op)`, `s.recordMissed(&op); s.recordRelease(&op)`},
	{"state.recordMissed", `UpTo: op.Order, `, ``},
	{"Missed.Recent", `m.ReleasedAt.Add(Retention).After(now)`, `true`},
	{"Missed.Recent", `m.ReleasedAt.Add(Retention)`, `m.At.Add(Retention)`},
	{"begin", `!m.Recent(now)`, `m.Order < 0`},
	{"state.attn", `len(s.doc.Missed) > 0`, `false`},
	{"state.idleAt", `s.doc.Missed[i].ReleasedAt.Add(Retention)`, `s.doc.Missed[i].ReleasedAt`},

	// What parts share.
	{"Entry.waitsForMore", ` && e.Within != ""`, ``},
	{"Entry.waitsForMore", `madeWithPart && `, `(madeWithPart || true) && `},
	{"Entry.add", `Stronger(e.Mode, o.Mode), Later(e.ExpiresAt, o.ExpiresAt)`, `e.Mode, Later(e.ExpiresAt, o.ExpiresAt)`},
	{"Entry.add", `Stronger(e.Mode, o.Mode), Later(e.ExpiresAt, o.ExpiresAt)`, `Stronger(e.Mode, o.Mode), e.ExpiresAt`},
	{"Entry.add", `o.TTL == 0 || o.TTL > e.TTL`, `o.TTL > e.TTL`},
	{"Entry.add", `o.TTL == 0 || o.TTL > e.TTL`, `o.TTL == 0`},
	{"Entry.add", `e.TTL != 0 && `, ``},
	{"Entry.add", `e.FirstOrder = min(e.FirstOrder, o.FirstOrder)`, ``},
	{"Entry.add", `e.FirstOrder, e.Regained = o.FirstOrder, o.Regained`, `e.Regained = o.Regained`},
	{"Entry.add", `e.FirstOrder, e.Regained = o.FirstOrder, o.Regained`, `e.FirstOrder = o.FirstOrder`},
	{"Entry.add", `cmp.Compare(o.Regained, e.Regained)`, `0`},
	{"Entry.add", `e.Order, e.Trace = o.Order, cmp.Or(o.Trace, e.Trace)`, `e.Order = o.Order`},
	{"Entry.add", `e.Order, e.Trace = o.Order, cmp.Or(o.Trace, e.Trace)`, `e.Trace = cmp.Or(o.Trace, e.Trace)`},
	{"Entry.add", `o.Order >= e.Order`, `true`},
	{"Entry.add", `max(e.Fence, o.Fence), max(e.LeastFence, o.LeastFence)`, `e.Fence, max(e.LeastFence, o.LeastFence)`},
	{"Entry.add", `earliest(e.CreatedAt, o.CreatedAt)`, `o.CreatedAt`},
	{"state.merge", `e.isSettled() || `, ``},
	{"state.merge", `e.ID, e.Since, e.ClaimedAt, e.Predecessor = settledID(e.ID), nil, nil, nil`, `e.Since, e.ClaimedAt, e.Predecessor = nil, nil, nil`},
	{"state.merge", `o.BelongsTo(e.LockID) && o.isSettled()`, `o.isSettled()`},
	{"state.merge", `o.BelongsTo(e.LockID) && o.isSettled()`, `false`},
	{"state.mergeEnded", `!e.waitsForMore() && `, ``},
	{"state.mergeEnded", `!present[part]`, `part != ""`},
	{"state.renewKept", `e.BelongsTo(lockID) && `, ``},
	{"Result.HoldsEnded", `(e.State != StateKept || after.Kept(e.LockID) == nil)`, `true`},

	// Grants.
	{"allowsJoin", `return v.Admits(p)`, `return true`},
	{"confirms", `!claim.Passed && `, ``},
	{"confirms", ` && room`, ` && (room || true)`},
	{"confirms", ` && v.Admits(p)`, ``},
	{"confirms", `p.Limit = 0`, ``},
	{"Entry.roomFor", `e.Limit > 0 && `, ``},
	{"Acquire.Apply", `s.renewKept(op.LockID)`, ``},
	{"state.isLost", `case op.Reacquire:`, `case false:`},
	{"state.isLost", `p == nil || (p.ID != op.Upgrades && p.ID != op.Call)`, `p == nil`},
	{"state.isLost", `p == nil || (p.ID != op.Upgrades && p.ID != op.Call)`, `p != nil && p.ID != op.Upgrades && p.ID != op.Call`},
	{"state.isLost", ` && p.ID != op.Call`, ``},
	{"state.isLost", `op.HeldSince > 0 && !s.doc.Keeps(op.LockID, op.HeldSince)`, `false`},
	{"state.isLost", `op.HeldSince > 0 && `, ``},
	{"state.grantOrQueue", `!slices.ContainsFunc(s.doc.Waiters, s.precedes)`, `true`},
	{"state.grantOrQueue", `!slices.ContainsFunc(s.doc.Waiters, s.precedes)`, `len(s.doc.Waiters) == 0`},
	{"state.grantOrQueue", `(claim != nil && confirms(s.doc, claim, op.Party())) || `, ``},
	{"state.grantOrQueue", `(next && s.doc.Admits(op.Party()))`, `((next || true) && s.doc.Admits(op.Party()))`},
	{"state.grantOrQueue", `(next && s.doc.Admits(op.Party()))`, `next`},
	{"state.grantedBefore", `e.ID == op.Call && `, ``},
	{"state.grant", `room.Limit = 0`, ``},
	{"state.grant", `s.evictFor(room)`, ``},
	{"state.grant", `made.Since, made.ClaimedAt, made.Predecessor = c.Since, c.ClaimedAt, c.Predecessor`, `made.Since, made.ClaimedAt = c.Since, c.ClaimedAt`},
	{"state.grant", `s.supersede(op)`, ``},
	{"state.grant", `s.renewKept(op.LockID)`, ``},
	{"state.grant", `kept.ID = op.Call`, ``},
	{"state.grant", `Later(expiry(s.now, op.HoldTTL), expiry(s.now, op.TTL))`, `expiry(s.now, op.TTL)`},
	{"state.grant", `kept.Regained = e.Number`, ``},
	{"state.grant", `if op.Reacquire {`, `if true {`},
	{"state.grant", `describe(&kept)`, ``},
	{"state.holdFor", `hold.CreatedAt = old.CreatedAt`, ``},
	{"state.holdFor", `if !joins || `, `if `},
	{"state.supersede", `own && mine && e.State == StateClaimed`, `false`},
	{"state.supersede", `own && e.waitsForMore()`, `false`},
	{"state.supersede", ` || (op.Upgrades != "" && e.Order == op.Order)`, ``},
	{"state.supersede", ` || !mine`, ``},
	{"state.supersede", `draining = append(draining, s.drain(e))`, ``},
	{"state.supersede", `!madeWithPart && `, `(!madeWithPart || true) && `},
	{"state.supersede", `e.BelongsTo(op.LockID) && !madeWithPart && e.ID != op.Call`, `madeWithPart && false`},
	{"state.settle", `!s.doc.Precedes(&w)`, `!w.Waits(s.now)`},
	{"state.settle", `!s.doc.Admits(w.Party())`, `granted > 0`},
	{"state.settle", `			return
`, `			i++
			continue
`},
	{"state.settle", ` && granted < SettleMost`, ``},
	{"state.grantWaiter", `s.evictFor(w.Party())`, ``},
	{"state.grantWaiter", `s.grants = true`, ``},
	{"state.grantWaiter", `ms(max(s.policy.ClaimTTL, w.ClaimTTL))`, `ms(s.policy.ClaimTTL)`},
	{"state.grantWaiter", `Predecessor: s.predecessor(), `, ``},
	{"state.grantWaiter", `if w.Hold == nil {`, `if true {`},
	{"state.grantWaiter", `hold.Since, hold.ClaimedAt, hold.Predecessor = claim.Since, claim.ClaimedAt, claim.Predecessor`, ``},
	{"state.grantWaiter", `granted.Part = w.Part`, ``},
	{"Waiter.holdRequest", `, Reacquire: w.Hold.Reacquire`, ``},
	{"Waiter.holdRequest", `TTL: w.Hold.TTL, HoldTTL`, `HoldTTL`},
	{"state.passClaims", ` && !e.Alive(s.now)`, ``},
	{"state.passClaims", `e.Passed = true`, ``},
	{"state.attn", `e.State != StateRunning`, `true`},
	{"state.attn", `e.State != StateRunning`, `false`},
	{"state.attn", `len(s.doc.Waiters) > 0`, `false`},
	{"state.end", `if s.grants {`, `if false {`},
	{"state.end", `s.mergeEnded()`, ``},
	{"state.evictFor", `map[string]bool{p.LockID: true}`, `map[string]bool{}`},
	{"state.evictFor", `s.doc.HeldByEnclosing(p)`, `false`},
	{"state.evictFor", ` && !p.enclosedBy(e)`, ``},
	{"state.grantOrQueue", `s.leaveQueue(op)`, ``},
	{"state.evictFor", ` && (e.Holds() || e.Alive(s.now))`, ``},
	{"state.evictFor", `most = min(most, p.Limit)`, ``},
	{"state.evictFor", `most = min(most, p.Limit)`, `most = p.Limit`},
	{"state.evictFor", `most := int64(Crowd)`, `most := int64(1 << 40)`},
	{"state.evictFor", `!e.Holds() || e.Alive(s.now) || `, `!e.Holds() || `},
	{"state.evictFor", `around && e.State != StateRunning`, `around`},
	{"state.evictFor", `around && e.State != StateRunning`, `false`},
	{"state.evictFor", `Compatible(e.Mode, p.Mode) && `, ``},
	{"state.evictFor", `(!crowded || live[e.partyKey()])`, `!crowded`},
	{"state.evictFor", `if !around {`, `if true {`},
	{"state.evictFor", `if !around {`, `if false {`},
	{"state.lose", `r.Order = max(r.Order, of.Order)`, ``},
	{"state.lose", `r.LockID == of.LockID && r.Label == of.Label && r.Fence == of.Fence && r.To == ""`, `false`},
	{"state.lose", `s.doc.LastEvidence++`, ``},
	{"state.idleAt", `e.State != StateClaimed`, `e.State != StateKept`},

	// Ends.
	{"Renew.Apply", `Later(e.ExpiresAt, expiry(now, e.TTL))`, `expiry(now, e.TTL)`},
	{"Renew.Apply", `s.renewKept(op.LockID)`, ``},
	{"Renew.Apply", `e.TTL, e.ExpiresAt = op.TTL, expiry(now, op.TTL)`, `e.TTL = op.TTL`},
	{"state.downgrade", `op.renews(e) && e.ID != latest`, `false`},
	{"state.downgrade", `e.isSettled() && alone`, `e.isSettled() && (alone || true)`},
	{"state.downgrade", ` || (e.isSettled() && alone)`, ` || (alone && false)`},
	{"state.downgrade", `ofPart[part]) || (`, `part == latest) || (`},
	{"state.downgrade", `(madeWithPart && ofPart[part]) || `, `(madeWithPart && ofPart[part] && false) || `},
	{"Leave.Apply", `return own(e) && e.Order <= op.Order`, `return own(e)`},
	{"Leave.Apply", `return own(e) && e.Order == op.Order && !op.QueueOnly`, `return own(e) && !op.QueueOnly`},
	{"Leave.Apply", `w.Part == op.Part && w.Order <= op.Order`, `w.Part == op.Part`},
	{"Leave.Apply", `w.Part == op.Part && w.Order <= op.Order`, `w.Order <= op.Order`},
	{"Leave.Apply", ` && e.Part == op.Part`, ``},
	{"state.leaveWaiting", ` && !s.partRuns(e)`, ``},
	{"state.leaveWaiting", `if !op.Keep {`, `if true {`},
	{"state.leaveWaiting", `e.TTL, e.ExpiresAt = op.HoldTTL, expiry(s.now, op.HoldTTL)`, `e.TTL = op.HoldTTL`},
	{"TakeBack.Apply", `e.ID == keptID(op.Call) || `, ``},
	{"TakeBack.Apply", ` || e.ID == drainingID(op.Call)`, ``},
	{"TakeBack.Apply", `return e.Part == op.Part && e.Order == op.Order`, `return false`},
	{"TakeBack.Apply", `w.LockID == op.LockID && w.Part == op.Part && w.Order == op.Order`, `false`},
	{"TakeBack.Apply", `w.LockID == op.LockID && w.Part == op.Part && w.Order == op.Order`, `w.LockID == op.LockID && w.Part == op.Part`},
	{"Release.Apply", `if op.Force {`, `if false {`},
	{"state.recordForced", `op.Now && e.State == StateDraining`, `e.State == StateDraining`},
	{"state.recordForced", `case e.Holds():`, `case true:`},
	{"state.recordForced", `op.Now && e.State == StateDraining`, `false`},
	{"state.recordRelease", `plain(op.Label, op.Order) || `, ``},
	{"state.recordRelease", ` && e.Order <= op.Order`, ``},
	{"state.recordRelease", `e.To == "" && `, ``},
	{"state.recordRelease", `(op.Label == "" || e.Label == op.Label)`, `true`},
	{"Document.Lost", `e.Number <= k.Regained`, `false`},
	{"Document.Lost", `e.isLoss(lockID, label), `, ``},
	{"Document.Lost", `e.isLossSince(lockID, since) && `, `false && `},
	{"Document.Lost", `(k == nil || e.Fence >= k.FirstFence)`, `true`},
	{"Document.Lost", `e.Fence >= k.FirstFence`, `false`},
	{"state.takeOver", `s.evidence = append(s.evidence, Evidence{LockID: lockID, Label: was, To: label, Number: s.doc.LastEvidence, At: s.now})`, `_ = was`},
	{"Raise.Apply", `s.renewKept(op.LockID)`, ``},
	{"Verify.Apply", `s.renewKept(op.LockID)`, ``},
	{"Verify.Apply", ` || s.doc.Lost(op.LockID, op.Label, op.LostSince) != nil`, ``},
	{"Verify.Apply", `op.LostSince`, `time.Time{}`},
	{"state.isLost", `op.LostSince`, `time.Time{}`},
	{"state.grant", `op.LostSince`, `time.Time{}`},
}
