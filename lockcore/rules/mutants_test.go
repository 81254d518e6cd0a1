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

// TestMutants_EachIsNoticedByAScenario breaks the rules, one at a time, and expects a scenario to
// fail. All mutants are built into one test program: each is a copy of its function, and the function
// begins by calling the copy that RULES_MUTANT selects.
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
			_, noticed, _ := strings.Cut(strings.Split(out, "\n")[1], "FAIL: ") // a log that says so is a failed test to those who count
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
	{"Entry.Of", ` && !e.Own`, ``},
	{"Entry.Counts", `e.ExpiresAt.After(now)`, `true`},
	{"Entry.Counts", `e.ExpiresAt.After(now)`, `false`},
	{"Entry.Counts", `!e.Of(p.LockID)`, `true`},
	{"Entry.Counts", `!p.isWithin(e)`, `true`},
	{"Party.isWithin", ` && e.State == StateKept`, ``},
	{"Document.Admits", `p.Labelled && d.holds`, `false && d.holds`},
	{"Document.Admits", `p.Limit == 0 || int64(len(others)) < p.Limit`, `true`},
	{"Document.FitsBeside", `!p.Labelled || d.Admits(p)`, `true`},
	{"Document.FitsBeside", `p.Limit = 0`, ``},

	// Acquire.
	{"Acquire.Apply", `; other {`, `; other && false {`},
	{"Acquire.Apply", `s.takeOver(op.LockID, op.Label)`, ``},
	{"Acquire.Apply", `s.undo(&op)`, ``},
	{"Acquire.Apply", `s.heard(op.LockID, false)`, ``},
	{"state.superseded", `overtaken {`, `overtaken && false {`},
	{"state.superseded", `p != nil &&`, `false && p != nil &&`},
	{"state.superseded", ` && p.Stands(s.now)`, ``},
	{"state.superseded", ` && p.ID != op.Call`, ``},
	{"state.superseded", ` && p.ID != op.Upgrades`, ``},
	{"state.lost", `op.Persist && s.doc`, `false && s.doc`},
	{"state.lost", `if op.Reacquire`, `if false`},
	{"state.lost", `op.Label != "" && evicted`, `false`},
	{"state.lost", `op.Held || evicted`, `evicted`},
	{"state.enter", `s.holding(op.LockID) || s.doc.Surrounds(op.Party())`, `s.doc.Surrounds(op.Party())`},
	{"state.enter", `s.holding(op.LockID) || s.doc.Surrounds(op.Party())`, `s.holding(op.LockID)`},
	{"state.enter", `!slices.ContainsFunc(s.doc.Waiters, s.awake)`, `true`},
	{"state.enter", `!slices.ContainsFunc(s.doc.Waiters, s.awake)`, `len(s.doc.Waiters) == 0`},
	{"state.enter", `next := claim != nil || `, `next := `},
	{"state.enter", `case tombstone != nil:`, `case false:`},
	{"state.enter", `case s.lost(op):`, `case false:`},
	{"state.enter", `case op.Refresh && (`, `case false && (`},
	{"state.enter", `(claim == nil && place < 0)`, `false`},
	{"state.enter", `(claim != nil && claim.Stands(s.now))`, `false`},
	{"state.enter", `case s.grantedBefore(op):`, `case false:`},
	{"state.enter", `case s.covered(op.LockID, op.Mode) && `, `case false && `},
	{"state.enter", `&& s.doc.FitsBeside(op.Party())`, ``},
	{"state.enter", `if op.Label != ""`, `if false`},
	{"state.enter", `case next && s.fits`, `case (next || true) && s.fits`},
	{"state.enter", `case next && s.fits(op.Party(), op.Room()):`, `case next:`},
	{"state.enter", `op.Room()):`, `Unlimited):`},
	{"state.enter", `case !op.Queue:`, `case false:`},
	{"state.enter", `s.enqueue(op, place, ahead || claim != nil)`, `s.enqueue(op, place, ahead)`},
	{"state.enter", `s.enqueue(op, place, ahead || claim != nil)`, `s.enqueue(op, place, claim != nil)`},
	{"state.grantedBefore", `k.ID == op.Call`, `true`},
	{"state.grantedBefore", `p.ID == op.Call && p.Stands(s.now)`, `p.ID == op.Call`},
	{"state.grant", `c.ClaimedAt, c.After`, `c.ClaimedAt, nil`},
	{"state.grant", `old != nil && old`, `false && old`},
	{"state.grant", `if op.Persist {
		made`, `if false {
		made`},
	{"state.grant", `if !op.HoldOnly {`, `if true {`},
	{"state.grant", `return w.LockID == op.LockID && w.Part == op.Part`, `return false`},
	{"state.grant", `return w.LockID == op.LockID && w.Part == op.Part`, `return w.LockID == op.LockID`},
	{"state.grant", `s.forgive(op.LockID, op.Label)`, ``},
	{"state.holdFor", `				hold.Mode = Exclusive`, ``},
	{"state.holdFor", `if op.Mode == Exclusive {`, `if false {`},
	{"state.holdFor", `hold.LeastFence = max(hold.LeastFence, e.LeastFence)`, ``},
	{"state.holdFor", `if s.result.Outcome == Granted || `, `if `},
	{"state.holdFor", `op.NewFence || `, ``},
	{"state.holdFor", `s.doc.Fence > hold.Fence || `, ``},
	{"state.holdFor", ` || again {`, ` {`},
	{"state.holdFor", `s.doc.Fence = hold.Fence`, ``},
	{"state.holdFor", `cmp.Or(hold.FirstFence, hold.Fence)`, `hold.Fence`},
	{"state.nextFence", `max(s.doc.Fence+1, s.now.UnixMilli())`, `s.doc.Fence + 1`},
	{"state.nextFence", `s.doc.Fence+1`, `s.doc.Fence`},
	{"state.forgive", `(e.Label == label && e.To == "")`, `e.Label == label`},
	{"state.forgive", `e.Label == label && `, ``},
	{"state.replaced", `mine && e.State == StateClaimed`, `false`},
	{"state.replaced", `e.State == StateKept || `, ``},
	{"state.replaced", `op.Upgrades != "" && e.Order == op.Order`, `false`},
	{"state.replaced", `!mine || `, ``},
	{"state.replaced", `own = append(own, s.drained(e))`, ``},
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
	{"state.enqueue", `place < 0 && !ahead && `, `place < 0 && `},
	{"state.enqueue", `place < 0 && !ahead && `, `!ahead && `},
	{"state.enqueue", `place < 0 && !ahead && `, `false && `},
	{"state.enqueue", `w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead`, `w.ClaimTTL, w.Ahead = was.ClaimTTL, was.Ahead`},
	{"state.enqueue", `w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead`, `w.Since, w.Ahead = was.Since, was.Ahead`},
	{"state.enqueue", `w.Since, w.ClaimTTL, w.Ahead = was.Since, was.ClaimTTL, was.Ahead`, `w.Since, w.ClaimTTL = was.Since, was.ClaimTTL`},
	{"state.enqueue", `w.Ahead = true`, ``},
	{"state.enqueue", `min(2*max(op.ClaimTTL, claim.ClaimTTL), op.LongestClaim())`, `2 * max(op.ClaimTTL, claim.ClaimTTL)`},
	{"state.enqueue", `if !claim.Stands(s.now)`, `if true`},
	{"state.enqueue", `len(pick(s.doc.Waiters, func(w *Waiter) bool { return w.Ahead }))`, `0`},
	{"state.enqueue", `e.Of(op.LockID) && e.Part == op.Part && e.State == StateClaimed`, `false`},
	{"state.enqueue", `int64(place) + 1`, `int64(place)`},
	{"state.enqueue", "if op.Refresh {\n\t\t\tw.Hold", "if false {\n\t\t\tw.Hold"},
	{"state.waiter", `Saga: op.Saga, `, ``},
	{"state.waiter", `w.Limit = op.Room()`, ``},
	{"state.waiter", `ms(op.Patience())`, `ms(op.WaiterTTL)`},
	{"state.waiter", `if op.HoldOnly`, `if false`},
	{"Acquire.Patience", `min(2*op.HeardIn, op.WaiterTTL)`, `2 * op.HeardIn`},

	// Parts and holds that end.
	{"Renew.Apply", `op.TTL > 0 && !p.Stands(s.now)`, `false`},
	{"Renew.Apply", `later(p.ExpiresAt, expiry(now, p.TTL))`, `expiry(now, p.TTL)`},
	{"Renew.Apply", `s.heard(op.LockID, false)`, ``},
	{"Renew.Apply", `p.TTL, p.ExpiresAt = op.TTL, expiry(now, op.TTL)`, `p.TTL = op.TTL`},
	{"state.downgrade", `own(e) && e.State == StateRunning && e.Part != part`, `false`},
	{"state.downgrade", `return e.Of(lockID) && e.Mode == Exclusive`, `return false`},
	{"state.downgrade", `return e.Of(lockID) && e.Mode == Exclusive`, `return e.Of(lockID)`},
	{"Leave.Apply", `op.Keep && left`, `op.Keep`},
	{"Leave.Apply", ` && k.Within != ""`, ``},
	{"Leave.Apply", `op.Keep && left`, `false`},
	{"Leave.Apply", `k.TTL, k.ExpiresAt = op.HoldTTL, expiry(s.now, op.HoldTTL)`, `k.TTL = op.HoldTTL`},
	{"Leave.Apply", `k.TTL, k.ExpiresAt = op.HoldTTL, expiry(s.now, op.HoldTTL)`, `k.ExpiresAt = expiry(s.now, op.HoldTTL)`},
	{"Leave.Apply", `(!e.Own || op.Label != "")`, `!e.Own`},
	{"Leave.Apply", `(!e.Own || op.Label != "")`, `true`},
	{"Leave.Apply", `e.Part == op.Part && e.State != StateKept`, `e.State != StateKept`},
	{"Leave.Apply", `op.Call == "" || e.ID == op.Call`, `true`},
	{"Leave.Apply", ` || e.ID == drainingID(op.Call)`, ``},
	{"Leave.Apply", `own(e) && asked(e.Order)`, `own(e)`},
	{"Leave.Apply", `own(e) && e.Order == op.Order && !op.Waiting`, `own(e) && !op.Waiting`},
	{"Leave.Apply", ` && !op.Waiting`, ``},
	{"Leave.Apply", `w.Part == op.Part && asked(w.Order)`, `w.Part == op.Part`},
	{"Leave.Apply", `w.Part == op.Part && asked(w.Order)`, `asked(w.Order)`},
	{"Leave.Apply", `if op.Undo`, `if false`},
	{"state.takeBack", `return e.Of(op.LockID) && e.State == StateRunning`, `return false`},
	{"state.takeBack", `!e.Joined`, `true`},
	{"state.takeBack", `(left || (op.Call != "" && e.ID == op.Call))`, `true`},
	{"state.takeBack", ` || (op.Call != "" && e.ID == op.Call)`, ``},
	{"GiveUpUpgrade.Apply", `p.ID == op.Call`, `true`},
	{"GiveUpUpgrade.Apply", `p.ID = op.Upgrades`, ``},
	{"GiveUpUpgrade.Apply", `s.downgrade(op.LockID, op.Part)`, ``},
	{"GiveUpUpgrade.Apply", `e.Of(op.LockID) && e.Part == op.Part`, `false`},
	{"GiveUpUpgrade.Apply", `w.LockID == op.LockID && w.Part == op.Part`, `false`},
	{"Release.Apply", `if op.Force && e.Holds()`, `if false && e.Holds()`},
	{"Release.Apply", `if op.Force && e.Holds() && `, `if op.Force && `},
	{"Release.Apply", `!op.stopped(&e) && (e`, `false && (e`},
	{"Release.Apply", `!op.stopped(&e) && (e`, `(e`},
	{"Release.Apply", `e.State == StateDraining || `, ``},
	{"Release.Apply", `(op.Label == "" || w.Label == op.Label)`, `true`},
	{"Release.Apply", ` && w.Order <= op.Order`, ``},
	{"Release.Apply", `if op.FirstFence == 0`, `if true`},
	{"Release.Apply", `s.over(&op)`, ``},
	{"Release.names", `return e.LockID == op.LockID && e`, `return e.Of(op.LockID) && e`},
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
	{"state.over", `if plain(op.Label, op.Order)`, `if false`},
	{"state.over", `was.Order >= op.Order`, `false`},
	{"state.over", `was.Order >= op.Order`, `was.Order > op.Order`},
	{"state.over", `old.LockID == op.LockID && old.Label == op.Label`, `false`},
	{"state.over", `s.forgive(op.LockID, op.Label)`, ``},
	{"state.over", `MaxOver)`, `2*MaxOver)`},
	{"Withdraw.Apply", ` && w.Verdict == ""`, ``},
	{"Withdraw.Apply", ` && w.Order == op.Order`, ``},
	{"Withdraw.Apply", ` && w.Part == op.Part`, ``},

	// What a document is searched for.
	{"Document.Keeps", ` && k.FirstOrder <= order`, ``},
	{"Entry.GivenUp", `(e.Place == nil || !e.Place.After(now))`, `true`},
	{"Entry.GivenUp", `(e.Place == nil || !e.Place.After(now))`, `false`},
	{"Document.EvictedRecord", ` && e.To == ""`, ``},
	{"Document.EvictedRecord", ` && (label == "" || e.Label == label)`, ``},
	{"Document.LostBefore", `!began.IsZero() && `, `false && `},
	{"Document.LostUpTo", ` && o.Lost`, ``},
	{"Document.LostUpTo", `d.EvictedRecord(lockID, label) != nil`, `false`},
	{"Document.LostUpTo", `d.EvictedRecord(lockID, label) != nil`, `true`},
	{"plain", `label == "" && `, ``},
	{"Document.Overtaker", ` && o.Label == r.Label`, ``},
	{"Document.Overtaker", `o.Order >= r.Order`, `o.Order > r.Order`},
	{"Document.Overtaker", `b.bars(r)`, `b.bars(r) && false`},
	{"Document.Overtaker", `by.Order = b.Order`, ``},
	{"Document.Overtaker", `d.Later(r.LockID, r.Part, r.Order); ok`, `d.Later(r.LockID, r.Part, r.Order); ok && false`},
	{"Bar.bars", ` && b.LockID != r.Within`, ``},
	{"Bar.bars", `b.LockID != r.LockID && b.LockID != r.Within`, `false`},
	{"Bar.bars", `b.Label == r.Label && `, ``},
	{"Bar.bars", `b.Saga == r.Saga && `, ``},
	{"Bar.bars", `r.Order <= b.Order`, `true`},
	{"Bar.bars", `r.Order <= b.Order`, `r.Order < b.Order`},
	{"Bar.bars", `b.Part == r.Part`, `true`},
	{"Document.Later", `(e.Order == order && e.State == StateDraining)`, `false`},
	{"Document.Later", `e.Order > order || `, ``},
	{"Document.Later", `w.Order > order`, `false`},
	{"Document.Later", `e.Part == part && e.State != StateKept`, `e.State != StateKept`},

	// Runs and bars.
	{"Document.otherRun", `e.Label == label && e.To != ""`, `false`},
	{"Document.otherRun", `(e.Holds() || e.Stands(d.At))`, `e.Stands(d.At)`},
	{"Document.otherRun", `w.LockID == lockID && foreign(w.Label)`, `false`},
	{"Document.otherRun", `(of == "" || of != takeOver)`, `true`},
	{"Document.otherRun", `(of == "" || of != takeOver)`, `false`},
	{"state.takeOver", `, e.HandedOver = label, fence, fence, 0, false`, ` = label, fence, fence, 0`},
	{"state.takeOver", `e.LeastFence, e.Order, e.HandedOver = label, fence, fence, 0, false`, `e.Order, e.HandedOver = label, fence, 0, false`},
	{"state.takeOver", `e.Label, e.Fence, e.LeastFence, e.Order, e.HandedOver = label, fence, fence, 0, false`, `e.Label, e.Fence, e.LeastFence, e.HandedOver = label, fence, fence, false`},
	{"state.takeOver", `e.Order, e.HandedOver = label, fence, fence, 0, false`, `e.Order, e.FirstOrder, e.HandedOver = label, fence, fence, 0, 0, false`},
	{"state.takeOver", `s.cutOff(e)...`, `e`},
	{"state.takeOver", `w.LockID == lockID && foreign(w.Label)`, `false`},
	{"state.takeOver", `s.acted = true`, ``},
	{"state.takeOver", `s.evidence = append(s.evidence, Evicted{LockID: lockID, Label: was, To: label, At: s.now})`, `_ = was`},
	{"state.takeOver", `b.LockID == lockID && b.Part == "" && b.Label != label`, `false`},
	{"state.takeOver", ` && b.Part == ""`, ``},
	{"state.cutOff", `e.State == StateClaimed || `, ``},
	{"state.cutOff", ` || !e.Stands(s.now)`, ``},
	{"state.cutOff", `e.Own, e.Mode = true, Exclusive`, `e.Mode = Exclusive`},
	{"state.cutOff", `e.Own, e.Mode = true, Exclusive`, `e.Own = true`},
	{"state.cutOff", `s.ended(e)`, ``},
	{"state.bar", `s.acted = true`, ``},
	{"state.settle", `to.Within, spared = head.Within, ""`, ``},
	{"state.cutOffAll", `e.State == StateKept || `, ``},
	{"state.cutOffAll", `e.Own || `, ``},
	{"state.cutOffAll", `return which(w.Request())`, `return false`},
	{"state.bar", `old.LockID == b.LockID && old.Part == b.Part`, `false`},
	{"Raise.Apply", `; other {`, `; other && false {`},
	{"Raise.Apply", `s.cutOffAll(op.undone(&known))`, ``},
	{"Raise.Apply", `slices.Concat(known.Evicted, s.evidence)`, `known.Evicted`},
	{"Raise.undone", `, op.TakeOver)`, `)`},
	{"Raise.undone", `slices.Contains(replaced, r.Label) && `, `len(replaced) < 0 && `},
	{"Raise.undone", `r.Saga == op.Saga && `, ``},
	{"Raise.undone", ` || r.Within == op.LockID`, ``},
	{"Raise.StillRun", `e.Own && e.Stands(d.At)`, `e.Own`},
	{"Raise.Apply", `len(op.StillRun(&known)) > 0`, `false`},
	{"Raise.Apply", `s.heard(op.LockID, false)`, ``},
	{"Verify.Apply", `if other {`, `if other && false {`},
	{"Verify.Apply", `s.takeOver(op.LockID, op.Label)`, ``},
	{"Verify.Apply", `s.heard(op.LockID, op.HandOver); `, ``},
	{"Verify.Apply", `op.HandOver`, `false`},
	{"Verify.Apply", `op.HandOver`, `true`},
	{"Verify.Apply", `op.Used`, `op.Used + 1`},

	// What every write does.
	{"begin", `return !w.ExpiresAt.After(now)`, `return false`},
	{"begin", `now.Add(-ms(policy.Memory()))`, `now`},
	{"begin", `d.EvidenceSince.IsZero()`, `true`},
	{"state.end", `if e.State != StateRunning`, `if false`},
	{"state.end", `if len(s.doc.Waiters) > 0`, `if false`},
	{"state.end", ` && !s.acted`, ``},
	{"state.end", `s.settle()`, ``},
	{"state.settle", `return s.awake(*w)`, `return w.Waits(s.now)`},
	{"state.settle", `case s.granted != nil:`, `case false:`},
	{"state.settle", `s.result.Outcome == Joined`, `false`},
	{"state.settle", `to.Limit = 1`, ``},
	{"state.settle", `case k > 0:`, `case false:`},
	{"state.settle", `e.After = after`, `_ = after`},
	{"state.settle", `e.State == StateKept`, `true`},
	{"state.settle", `e.State == StateKept`, `false`},
	{"state.settle", `of.Part = waiting[i].Part`, ``},
	{"state.settle", `return slices.Contains(waiting[:k], *w)`, `return false`},
	{"state.settle", `, spared)`, `, spared[:0])`},
	{"state.grantsHold", ` && !s.holding(w.LockID)`, ``},
	{"state.claimFor", `!s.grantsHold(w)`, `true`},
	{"state.claimFor", `ms(max(s.policy.ClaimTTL, w.ClaimTTL))`, `ms(s.policy.ClaimTTL)`},
	{"state.claimFor", `s.attn[w.Mode] = true`, ``},
	{"state.claimFor", `if w.Hold.Reacquire`, `if false`},
	{"state.claimFor", `s.doc.Fence = s.nextFence()`, ``},
	{"state.served", `slices.ContainsFunc(beside, func(e Entry) bool { return e.Mode == Exclusive })`, `false`},
	{"state.served", `e.Stands(s.now) && `, ``},
	{"state.served", `(head.Within == "" || !e.Of(head.Within) || e.State != StateKept)`, `true`},
	{"state.served", `s.covered(head.LockID, Exclusive)`, `false`},
	{"state.served", `limit-others(beside, head.LockID)`, `limit`},
	{"state.served", `room = min(room, 1)`, ``},
	{"state.served", `waiting[k].Limit == head.Limit`, `true`},
	{"state.served", `SettleMost`, `1000`},
	{"state.after", `e.CreatedAt != nil || `, ``},
	{"state.after", ` || e.State == StateDraining`, ``},
	{"state.after", `s.left, `, ``},
	{"state.after", `, s.result.Expired`, ``},
	{"state.after", `e.FirstFence`, `e.Fence`},
	{"state.displace", `around = to.Within`, ``},
	{"state.displace", `limit = min(limit, limitOf(&waiting[0]))`, ``},
	{"state.displace", `others[w.LockID] = true`, `_ = w`},
	{"state.displace", `others[to.LockID] = true`, ``},
	{"state.displace", `min(limit, Crowd)`, `limit`},
	{"state.displace", `return e.State == StateRunning`, `return false`},
	{"state.displace", `(spared == "" || !e.Of(spared))`, `true`},
	{"state.displace", `e.Mode == Exclusive || `, ``},
	{"state.displace", `crowded && !live`, `crowded && true || !live`},
	{"state.displace", `live[w.LockID] = live[w.LockID] || i < served`, ``},
	{"state.evict", ` && !e.Stands(s.now)`, ``},
	{"state.evict", `around == "" || !e.Of(around)`, `true`},
	{"state.evict", `around == "" || !e.Of(around)`, `false`},
	{"state.evict", `s.doc.Entries = drop(s.doc.Entries, gone)`, ``},
	{"state.addEvidence", `s.doc.EvidenceSince = later(s.doc.EvidenceSince, s.doc.Evicted[over-1].At)`, ``},
	{"state.addEvidence", `MaxEvicted), s`, `MaxEvicted+1), s`},
	{"state.dropDead", `e.GivenUp(s.now) || `, ``},
	{"state.idleAt", `at = later(at, e.ExpiresAt)`, `_ = e`},
	{"state.heard", `later(e.ExpiresAt, expiry(s.now, e.TTL))`, `expiry(s.now, e.TTL)`},
	{"state.heard", `s.acted = true`, ``},
	{"state.drained", `2*ms(e.TTL) + EndlessTTL`, `EndlessTTL`},
	{"state.drained", `end.Before(e.ExpiresAt)`, `false`},
	{"state.drained", `e.State, e.ID = StateDraining, drainingID(e.ID)`, `e.ID = drainingID(e.ID)`},
	{"state.drained", `e.State, e.ID = StateDraining, drainingID(e.ID)`, `e.State = StateDraining`},
	{"state.claim", ` && !c.GivenUp(s.now)`, ``},
	{"state.forget", `s.ended(asEntry(&w))`, `_ = w`},
}
