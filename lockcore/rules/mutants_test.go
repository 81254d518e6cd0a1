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
	{"Document.InTheWay", `p.Labelled && d.holds`, `false && d.holds`},
	{"Document.InTheWay", `int64(len(others)) >= p.Limit`, `false`},
	{"Document.AllowsJoin", `!p.Labelled || d.Admits(p)`, `true`},
	{"Document.AllowsJoin", `p.Limit = 0`, ``},

	// Acquire.
	{"Acquire.Apply", `; other {`, `; other && false {`},
	{"Acquire.Apply", `s.takeOver(op.LockID, op.Label)`, ``},
	{"Acquire.Apply", `s.barUndone(&op)`, ``},
	{"Acquire.Apply", `s.renewKept(op.LockID, false)`, ``},
	{"state.superseded", `overtaken {`, `overtaken && false {`},
	{"state.superseded", `p != nil &&`, `false && p != nil &&`},
	{"state.superseded", ` && p.Alive(s.now)`, ``},
	{"state.superseded", ` && p.ID != op.Call`, ``},
	{"state.superseded", ` && p.ID != op.Upgrades`, ``},
	{"state.isLost", `op.Persist && s.doc`, `false && s.doc`},
	{"state.isLost", `if op.Reacquire`, `if false`},
	{"state.isLost", `op.Label != "" && evicted`, `false`},
	{"state.isLost", `op.Held || evicted`, `evicted`},
	{"state.grantOrQueue", `s.holds(op.LockID) || s.doc.HeldByEnclosing(op.Party())`, `s.doc.HeldByEnclosing(op.Party())`},
	{"state.grantOrQueue", `s.holds(op.LockID) || s.doc.HeldByEnclosing(op.Party())`, `s.holds(op.LockID)`},
	{"state.grantOrQueue", `!slices.ContainsFunc(s.doc.Waiters, s.eligible)`, `true`},
	{"state.grantOrQueue", `!slices.ContainsFunc(s.doc.Waiters, s.eligible)`, `len(s.doc.Waiters) == 0`},
	{"state.grantOrQueue", `next := claim != nil || `, `next := `},
	{"state.grantOrQueue", `case tombstone != nil:`, `case false:`},
	{"state.grantOrQueue", `case s.isLost(op):`, `case false:`},
	{"state.grantOrQueue", `case op.Refresh && (`, `case false && (`},
	{"state.grantOrQueue", `(claim == nil && index < 0)`, `false`},
	{"state.grantOrQueue", `(claim != nil && claim.Alive(s.now))`, `false`},
	{"state.grantOrQueue", `case s.grantedBefore(op):`, `case false:`},
	{"state.grantOrQueue", `case s.covered(op.LockID, op.Mode) && `, `case false && `},
	{"state.grantOrQueue", `&& s.doc.AllowsJoin(op.Party())`, ``},
	{"state.grantOrQueue", `if op.Label != ""`, `if false`},
	{"state.grantOrQueue", `case next && s.fits`, `case (next || true) && s.fits`},
	{"state.grantOrQueue", `case next && s.fits(op.Party(), op.Room()):`, `case next:`},
	{"state.grantOrQueue", `op.Room()):`, `Unlimited):`},
	{"state.grantOrQueue", `case !op.Queue:`, `case false:`},
	{"state.grantOrQueue", `s.enqueue(op, index, ahead || claim != nil)`, `s.enqueue(op, index, ahead)`},
	{"state.grantOrQueue", `s.enqueue(op, index, ahead || claim != nil)`, `s.enqueue(op, index, claim != nil)`},
	{"state.grantedBefore", `k.ID == op.Call`, `true`},
	{"state.grantedBefore", `p.ID == op.Call && p.Alive(s.now)`, `p.ID == op.Call`},
	{"state.grant", `c.ClaimedAt, c.Predecessor`, `c.ClaimedAt, nil`},
	{"state.grant", `old != nil && old`, `false && old`},
	{"state.grant", `if op.Persist {
		made`, `if false {
		made`},
	{"state.grant", `if !op.HoldOnly {`, `if true {`},
	{"state.grant", `return w.LockID == op.LockID && w.Part == op.Part`, `return false`},
	{"state.grant", `return w.LockID == op.LockID && w.Part == op.Part`, `return w.LockID == op.LockID`},
	{"state.grant", `s.clearEvidence(op.LockID, op.Label)`, ``},
	{"state.holdFor", `hold.Mode = Stronger(hold.Mode, e.Mode)`, ``},
	{"state.holdFor", `e.Mode = Stronger(e.Mode, op.Mode)`, ``},
	{"Stronger", `Covers(b, a)`, `Covers(a, b)`},
	{"state.holdFor", `hold.LeastFence = max(hold.LeastFence, e.LeastFence)`, ``},
	{"state.holdFor", `if s.result.Outcome == Granted || `, `if `},
	{"state.holdFor", `op.NewFence || `, ``},
	{"state.holdFor", `s.doc.Fence > hold.Fence || `, ``},
	{"state.holdFor", ` || again {`, ` {`},
	{"state.holdFor", `s.doc.Fence = hold.Fence`, ``},
	{"state.holdFor", `cmp.Or(hold.FirstFence, hold.Fence)`, `hold.Fence`},
	{"state.nextFence", `max(s.doc.Fence+1, s.now.UnixMilli())`, `s.doc.Fence + 1`},
	{"state.nextFence", `s.doc.Fence+1`, `s.doc.Fence`},
	{"state.clearEvidence", `(e.Label == label && e.To == "")`, `e.Label == label`},
	{"state.clearEvidence", `e.Label == label && `, ``},
	{"state.replaced", `mine && e.State == StateClaimed`, `false`},
	{"state.replaced", `e.State == StateKept || `, ``},
	{"state.replaced", `op.Upgrades != "" && e.Order == op.Order`, `false`},
	{"state.replaced", `!mine || `, ``},
	{"state.replaced", `own = append(own, s.drain(e))`, ``},
	{"state.kept", `k.Joined = true`, ``},
	{"state.kept", `k = *was`, ``},
	{"state.kept", `min(k.FirstOrder, op.Order)`, `op.Order`},
	{"state.kept", `max(k.Order, op.Order)`, `op.Order`},
	{"state.kept", `k.ID = op.Call`, ``},
	{"state.kept", `later(expiry(s.now, op.HoldTTL), expiry(s.now, op.TTL))`, `expiry(s.now, op.TTL)`},
	{"state.kept", `op.Within == "" || k.Within == ""`, `true`},
	{"state.kept", `op.Within == "" || k.Within == ""`, `op.Within == ""`},
	{"state.kept", `later(k.ExpiresAt, ends)`, `ends`},
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
	{"state.waiter", `w.Limit = op.Room()`, ``},
	{"state.waiter", `ms(op.OverdueAfter())`, `ms(op.WaiterTTL)`},
	{"state.waiter", `if op.HoldOnly`, `if false`},
	{"Acquire.OverdueAfter", `min(2*op.NextRefresh, op.WaiterTTL)`, `2 * op.NextRefresh`},

	// Parts and holds that end.
	{"Renew.Apply", `op.TTL > 0 && !p.Alive(s.now)`, `false`},
	{"Renew.Apply", `later(p.ExpiresAt, expiry(now, p.TTL))`, `expiry(now, p.TTL)`},
	{"Renew.Apply", `s.renewKept(op.LockID, false)`, ``},
	{"Renew.Apply", `p.TTL, p.ExpiresAt = op.TTL, expiry(now, op.TTL)`, `p.TTL = op.TTL`},
	{"state.downgrade", `own(e) && e.State == StateRunning && e.Part != part`, `false`},
	{"state.downgrade", `s.downgraded = append(s.downgraded, *e)`, ``},
	{"state.downgrade", `own(e) && e.Mode == Exclusive`, `own(e)`},
	{"Leave.Apply", `op.Keep && left`, `op.Keep`},
	{"Leave.Apply", ` && k.Within != ""`, ``},
	{"Leave.Apply", `op.Keep && left`, `false`},
	{"Leave.Apply", `k.TTL, k.ExpiresAt = op.HoldTTL, expiry(s.now, op.HoldTTL)`, `k.TTL = op.HoldTTL`},
	{"Leave.Apply", `k.TTL, k.ExpiresAt = op.HoldTTL, expiry(s.now, op.HoldTTL)`, `k.ExpiresAt = expiry(s.now, op.HoldTTL)`},
	{"Leave.Apply", `(!e.CutOff || op.Label != "")`, `!e.CutOff`},
	{"Leave.Apply", `(!e.CutOff || op.Label != "")`, `true`},
	{"Leave.Apply", `e.Part == op.Part && e.State != StateKept`, `e.State != StateKept`},
	{"Leave.Apply", `op.Call == "" || e.ID == op.Call`, `true`},
	{"Leave.Apply", ` || e.ID == drainingID(op.Call)`, ``},
	{"Leave.Apply", `own(e) && asked(e.Order)`, `own(e)`},
	{"Leave.Apply", `own(e) && e.Order == op.Order && !op.QueueOnly`, `own(e) && !op.QueueOnly`},
	{"Leave.Apply", ` && !op.QueueOnly`, ``},
	{"Leave.Apply", `w.Part == op.Part && asked(w.Order)`, `w.Part == op.Part`},
	{"Leave.Apply", `w.Part == op.Part && asked(w.Order)`, `asked(w.Order)`},
	{"Leave.Apply", `if op.Undo`, `if false`},
	{"state.takeBack", `return e.BelongsTo(op.LockID) && e.State == StateRunning`, `return false`},
	{"state.takeBack", `!e.Joined`, `true`},
	{"state.takeBack", `(left || (op.Call != "" && e.ID == op.Call))`, `true`},
	{"state.takeBack", ` || (op.Call != "" && e.ID == op.Call)`, ``},
	{"UndoUpgrade.Apply", `p.ID == op.Call`, `true`},
	{"UndoUpgrade.Apply", `p.ID = op.Upgrades`, ``},
	{"UndoUpgrade.Apply", `s.downgrade(op.LockID, op.Part)`, ``},
	{"UndoUpgrade.Apply", `e.BelongsTo(op.LockID) && e.Part == op.Part`, `false`},
	{"UndoUpgrade.Apply", `w.LockID == op.LockID && w.Part == op.Part`, `false`},
	{"Release.Apply", `if op.Force && holds {`, `if false && holds {`},
	{"Release.Apply", `e.Holds() && e.CreatedAt`, `e.CreatedAt`},
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
	{"state.recordRelease", `if plain(op.Label, op.Order)`, `if false`},
	{"state.recordRelease", `was.Order >= op.Order`, `false`},
	{"state.recordRelease", `was.Order >= op.Order`, `was.Order > op.Order`},
	{"state.recordRelease", `old.LockID == op.LockID && old.Label == op.Label`, `false`},
	{"state.recordRelease", `s.clearEvidence(op.LockID, op.Label)`, ``},
	{"state.recordRelease", `MaxReleases)`, `2*MaxReleases)`},
	{"Release.Apply", `MaxForced)`, `2*MaxForced)`},
	{"Release.Apply", `op.Now && e.State == StateDraining`, `false`},
	{"Release.Apply", `op.Now && e.State == StateDraining`, `e.State == StateDraining`},
	{"Withdraw.Apply", ` && w.Verdict == ""`, ``},
	{"Withdraw.Apply", ` && w.Order == op.Order`, ``},
	{"Withdraw.Apply", ` && w.Part == op.Part`, ``},

	// Searches in a document.
	{"Document.Keeps", ` && k.FirstOrder <= order`, ``},
	{"Entry.Forfeited", `(e.PositionExpiresAt == nil || !e.PositionExpiresAt.After(now))`, `true`},
	{"Entry.Forfeited", `(e.PositionExpiresAt == nil || !e.PositionExpiresAt.After(now))`, `false`},
	{"Document.LossEvidence", ` && e.To == ""`, ``},
	{"Document.LossEvidence", ` && (label == "" || e.Label == label)`, ``},
	{"Document.LostBefore", `!began.IsZero() && `, `false && `},
	{"Document.LostUpTo", ` && o.Lost`, ``},
	{"Document.LostUpTo", `d.LossEvidence(lockID, label) != nil`, `false`},
	{"Document.LostUpTo", `d.LossEvidence(lockID, label) != nil`, `true`},
	{"plain", `label == "" && `, ``},
	{"Document.SupersededBy", ` && o.Label == r.Label`, ``},
	{"Document.SupersededBy", `o.Order >= r.Order`, `o.Order > r.Order`},
	{"Document.SupersededBy", `b.matches(r)`, `b.matches(r) && false`},
	{"Document.SupersededBy", `by.Order = b.Order`, ``},
	{"Document.SupersededBy", `d.LaterOrder(r.LockID, r.Part, r.Order); ok`, `d.LaterOrder(r.LockID, r.Part, r.Order); ok && false`},
	{"Bar.matches", ` && b.LockID != r.Within`, ``},
	{"Bar.matches", `b.LockID != r.LockID && b.LockID != r.Within`, `false`},
	{"Bar.matches", `b.Label == r.Label && `, ``},
	{"Bar.matches", `b.Saga == r.Saga && `, ``},
	{"Bar.matches", `r.Order <= b.Order`, `true`},
	{"Bar.matches", `r.Order <= b.Order`, `r.Order < b.Order`},
	{"Bar.matches", `b.Part == r.Part`, `true`},
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
	{"state.takeOver", `, e.HandedOver = label, fence, fence, 0, false`, ` = label, fence, fence, 0`},
	{"state.takeOver", `e.LeastFence, e.Order, e.HandedOver = label, fence, fence, 0, false`, `e.Order, e.HandedOver = label, fence, 0, false`},
	{"state.takeOver", `e.Label, e.Fence, e.LeastFence, e.Order, e.HandedOver = label, fence, fence, 0, false`, `e.Label, e.Fence, e.LeastFence, e.HandedOver = label, fence, fence, false`},
	{"state.takeOver", `e.Order, e.HandedOver = label, fence, fence, 0, false`, `e.Order, e.FirstOrder, e.HandedOver = label, fence, fence, 0, 0, false`},
	{"state.takeOver", `s.cutOff(e)...`, `e`},
	{"state.takeOver", `w.LockID == lockID && foreign(w.Label)`, `false`},
	{"state.takeOver", `s.changed = true`, ``},
	{"state.takeOver", `s.evidence = append(s.evidence, Evidence{LockID: lockID, Label: was, To: label, At: s.now})`, `_ = was`},
	{"state.takeOver", `b.LockID == lockID && b.Part == "" && b.Label != label`, `false`},
	{"state.takeOver", ` && b.Part == ""`, ``},
	{"state.cutOff", `e.State == StateClaimed || `, ``},
	{"state.cutOff", ` || !e.Alive(s.now)`, ``},
	{"state.cutOff", `e.CutOff, e.Mode = true, Exclusive`, `e.Mode = Exclusive`},
	{"state.cutOff", `e.CutOff, e.Mode = true, Exclusive`, `e.CutOff = true`},
	{"state.cutOff", `s.recordEnded(e)`, ``},
	{"state.bar", `s.changed = true`, ``},
	{"state.settle", `to.Within, spared = head.Within, ""`, ``},
	{"state.cutOffAll", `e.State == StateKept || `, ``},
	{"state.cutOffAll", `e.CutOff || `, ``},
	{"state.cutOffAll", `return which(w.Request())`, `return false`},
	{"state.bar", `old.LockID == b.LockID && old.Part == b.Part`, `false`},
	{"Raise.Apply", `; other {`, `; other && false {`},
	{"Raise.Apply", `return op.undoes(r, replaced)`, `return false && op.undoes(r, replaced)`},
	{"Raise.Apply", `slices.Concat(known.Evidence, s.evidence)`, `known.Evidence`},
	{"Raise.replacedRuns", `, op.TakeOver)`, `)`},
	{"Raise.undoes", `slices.Contains(replaced, r.Label) && `, `len(replaced) < 0 && `},
	{"Raise.undoes", `r.Saga == op.Saga && `, ``},
	{"Raise.undoes", ` || r.Within == op.LockID`, ``},
	{"Raise.StillRunning", `e.CutOff && e.Alive(d.At)`, `e.CutOff`},
	{"Raise.Apply", `len(op.StillRunning(&known)) > 0`, `false`},
	{"Raise.Apply", `s.renewKept(op.LockID, false)`, ``},
	{"Verify.Apply", `if other {`, `if other && false {`},
	{"Verify.Apply", `s.takeOver(op.LockID, op.Label)`, ``},
	{"Verify.Apply", `s.renewKept(op.LockID, op.HandOver); `, ``},
	{"Verify.Apply", `op.HandOver`, `false`},
	{"Verify.Apply", `op.HandOver`, `true`},
	{"Verify.Apply", `op.Used`, `op.Used + 1`},

	// What every write does.
	{"begin", `return !w.ExpiresAt.After(now)`, `return false`},
	{"begin", `now.Add(-Retention)`, `now`},
	{"begin", `d.EvidenceSince.IsZero()`, `true`},
	{"state.end", `if e.State != StateRunning`, `if false`},
	{"state.end", `if len(s.doc.Waiters) > 0`, `if false`},
	{"state.end", ` && !s.changed`, ``},
	{"state.end", `s.settle()`, ``},
	{"state.settle", `return s.eligible(*w)`, `return w.Waits(s.now)`},
	{"state.settle", `case s.granted != nil:`, `case false:`},
	{"state.settle", `s.result.Outcome == Joined`, `false`},
	{"state.settle", `to.Limit = 1`, ``},
	{"state.settle", `case k > 0:`, `case false:`},
	{"state.settle", `e.Predecessor = after`, `_ = after`},
	{"state.settle", `e.State == StateKept`, `true`},
	{"state.settle", `e.State == StateKept`, `false`},
	{"state.settle", `of.Part = waiting[i].Part`, ``},
	{"state.settle", `return slices.Contains(waiting[:k], *w)`, `return false`},
	{"state.settle", `, spared)`, `, spared[:0])`},
	{"state.grantsHold", ` && !s.holds(w.LockID)`, ``},
	{"state.grantTo", `!s.grantsHold(w)`, `true`},
	{"state.grantTo", `ms(max(s.policy.ClaimTTL, w.ClaimTTL))`, `ms(s.policy.ClaimTTL)`},
	{"state.grantTo", `s.attn[w.Mode] = true`, ``},
	{"state.grantTo", `if w.Hold.Reacquire`, `if false`},
	{"state.grantTo", `s.doc.Fence = s.nextFence()`, ``},
	{"state.countGrantable", `slices.ContainsFunc(beside, func(e Entry) bool { return e.Mode == Exclusive })`, `false`},
	{"state.countGrantable", `e.Alive(s.now) && `, ``},
	{"state.countGrantable", `(head.Within == "" || !e.BelongsTo(head.Within) || e.State != StateKept)`, `true`},
	{"state.countGrantable", `s.covered(head.LockID, Exclusive)`, `false`},
	{"state.countGrantable", `limit-others(beside, head.LockID)`, `limit`},
	{"state.countGrantable", `room = min(room, 1)`, ``},
	{"state.countGrantable", `waiting[k].Limit == head.Limit`, `true`},
	{"state.countGrantable", `SettleMost`, `1000`},
	{"state.predecessor", `e.CreatedAt != nil || `, ``},
	{"state.predecessor", ` || e.State == StateDraining`, ``},
	{"state.predecessor", `s.downgraded, `, ``},
	{"state.predecessor", `, s.result.Expired`, ``},
	{"state.predecessor", `e.FirstFence`, `e.Fence`},
	{"state.evictExpired", `around = to.Within`, ``},
	{"state.evictExpired", `limit = min(limit, limitOf(&waiting[0]))`, ``},
	{"state.evictExpired", `others[w.LockID] = true`, `_ = w`},
	{"state.evictExpired", `others[to.LockID] = true`, ``},
	{"state.evictExpired", `min(limit, Crowd)`, `limit`},
	{"state.evictExpired", `return e.State == StateRunning`, `return false`},
	{"state.evictExpired", `(spared == "" || !e.BelongsTo(spared))`, `true`},
	{"state.evictExpired", `e.Mode == Exclusive || `, ``},
	{"state.evictExpired", `crowded && !live`, `crowded && true || !live`},
	{"state.evictExpired", `live[w.LockID] = live[w.LockID] || i < served`, ``},
	{"state.evict", ` && !e.Alive(s.now)`, ``},
	{"state.evict", `around == "" || !e.BelongsTo(around)`, `true`},
	{"state.evict", `around == "" || !e.BelongsTo(around)`, `false`},
	{"state.evict", `s.doc.Entries = without(s.doc.Entries, gone)`, ``},
	{"state.addEvidence", `s.doc.EvidenceSince = later(s.doc.EvidenceSince, s.doc.Evidence[over-1].At)`, ``},
	{"state.addEvidence", `MaxEvidence), s`, `MaxEvidence+1), s`},
	{"state.dropDead", `e.Forfeited(s.now) || `, ``},
	{"state.idleAt", `at = later(at, e.ExpiresAt)`, `_ = e`},
	{"state.renewKept", `later(e.ExpiresAt, expiry(s.now, e.TTL))`, `expiry(s.now, e.TTL)`},
	{"state.renewKept", `s.changed = true`, ``},
	{"state.drain", `2*ms(e.TTL) + EndlessTTL`, `EndlessTTL`},
	{"state.drain", `end.Before(e.ExpiresAt)`, `false`},
	{"state.drain", `e.State, e.ID = StateDraining, drainingID(e.ID)`, `e.ID = drainingID(e.ID)`},
	{"state.drain", `e.State, e.ID = StateDraining, drainingID(e.ID)`, `e.State = StateDraining`},
	{"state.claim", ` && !c.Forfeited(s.now)`, ``},
	{"state.removeWaiters", `s.recordEnded(asEntry(&w))`, `_ = w`},
}
