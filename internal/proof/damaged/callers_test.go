package damaged_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Why no check of TestReaders reads bad documents through a caller.
const (
	oneDocument = "none: one document, and its error names it"
	ofTests     = "none: a store of tests"
	noLocks     = "none: it reads no documents of locks"
)

// callers are the functions that list documents, or read several. Each has the check of TestReaders that calls it, or the reason why none does.
var callers = map[string]string{
	"lockcore/locker.go:readMajority":                   "waiters",
	"lockcore/locker.go:readOne":                        oneDocument,
	"lockcore/deadlock.go:BreakDeadlocks":               "deadlocks",
	"lockcore/deadlock.go:Deadlocks":                    "deadlocks",
	"lockcore/fenced.go:record":                         noLocks,
	"lockcore/renew.go:extend":                          noLocks,
	"lockcore/keeper.go:poolBusy":                       noLocks,
	"lockcore/status.go:Losses":                         "losses",
	"lockcore/status.go:Missed":                         "losses",
	"lockcore/status.go:Status":                         "status",
	"lockcore/status.go:list":                           "status",
	"lockcore/park.go:changed":                          "waiters",
	"lockcore/watch.go:poll":                            "waiters",
	"lockcore/mongolock/client.go:once":                 oneDocument,
	"lockcore/mongolock/end.go:Purge":                   "mongolock",
	"lockcore/mongolock/status.go:Status":               "mongolock",
	"lockcore/mongolock/status.go:locksOf":              "mongolock",
	"internal/currentrun/currentrun.go:Run":             noLocks,
	"internal/currentrun/currentrun.go:inherited":       "status",
	"internal/engine/store/encode.go:fieldsOf":          noLocks,
	"internal/engine/store/extend.go:findExtended":      "several",
	"internal/engine/store/layout.go:findForeign":       noLocks,
	"internal/engine/store/layout.go:MissingIndexes":    noLocks,
	"internal/engine/store/list.go:openList":            "status",
	"internal/engine/store/memory.go:List":              ofTests,
	"internal/engine/store/memory.go:LoadMajority":      ofTests,
	"internal/engine/store/mongo.go:read":               "several",
	"internal/engine/store/mongo.go:readVersions":       "several",
	"internal/engine/update/loop.go:carryOut":           oneDocument,
	"internal/engine/update/several.go:loadSeveral":     "several",
	"internal/janitor/round.go:Round":                   "janitor",
	"internal/janitor/round.go:list":                    "janitor",
	"activities/wait.go:checkFull":                      oneDocument,
	"internal/cli/demo/report.go:measure":               noLocks,
	"internal/cli/inspect/doctor.go:activeJanitor":      oneDocument,
	"internal/cli/inspect/doctor.go:commits":            "doctor",
	"internal/cli/inspect/doctor.go:documents":          "doctor",
	"internal/cli/inspect/doctor.go:hasJanitor":         oneDocument,
	"internal/cli/inspect/doctor.go:semaphores":         "doctor",
	"internal/cli/inspect/policies.go:matches":          "doctor",
	"internal/cli/inspect/policies.go:policies":         "doctor",
	"internal/engine/store/policies.go:ChangeIdentity":  noLocks,
	"internal/engine/store/policies.go:adopt":           noLocks,
	"internal/cli/inspect/doctor_temporal.go:janitor":   "doctor",
	"internal/cli/inspect/doctor_temporal.go:attempts":  "resources",
	"internal/cli/inspect/doctor_temporal.go:deadlocks": "doctor",
	"internal/cli/inspect/foreign.go:foreign":           "resources",
	"internal/cli/inspect/pools.go:Pool":                oneDocument,
	"internal/cli/inspect/pools.go:pools":               "doctor",
	"internal/cli/inspect/site.go:CheckCollection":      noLocks,
	"internal/cli/inspect/site.go:Losses":               "show",
	"internal/cli/inspect/site.go:Missed":               "why",
	"internal/cli/inspect/site.go:Resources":            "resources",
	"internal/cli/inspect/site.go:Show":                 "show",
	"internal/cli/inspect/stuck.go:Deadlocks":           "incomplete",
	"internal/cli/inspect/stuck.go:checkComplete":       "incomplete",
	"internal/cli/inspect/why.go:Why":                   "why",
	"internal/cli/repair/repair.go:Clear":               "clear",
	"internal/cli/repair/repair.go:deleteDamaged":       "clear",
	"internal/cli/repair/repair.go:release":             oneDocument,
	"internal/cli/ui/listing.go:readResources":          "page",
	"cmd/lockstep/inspect.go:deadlocksCommand":          "incomplete",
	"cmd/lockstep/inspect.go:list":                      "resources",
	"cmd/lockstep/inspect.go:run":                       "resources",
	"cmd/lockstep/repair.go:readable":                   oneDocument,
}

// others call functions of the same names, which are not about documents of locks.
var others = []string{
	"interceptors/activity_inbound.go:checkCollection", "interceptors/rules.go:resourcesByRule", "internal/cli/contention/blame.go:wait",
	"activities/acquire.go:Acquire", "activities/activities.go:Release", "activities/activities.go:Verify",
	"activities/wait.go:Wait", "lockcore/verify.go:lost", "internal/engine/rules/superseded.go:replacedRuns", "worker/plugin.go:awaitDatabase",
	"cmd/lockstep/pool.go:change", "worker/plugin.go:register", "internal/runstate/state.go:addLocks", "workflows/locks.go:guard",
}

// A new function that lists documents, or reads several, must be added to the callers, with the check that reads bad documents through it.
func TestCallers_EachHasACheck(t *testing.T) {
	t.Parallel()
	found := findCallers(t)
	for name, check := range callers {
		require.True(t, found[name], "%s no longer reads documents", name)
		known := strings.HasPrefix(check, "none: ") || slices.ContainsFunc(checks, func(c readerCheck) bool { return c.name == check })
		require.True(t, known, "%s: there is no check %q", name, check)
	}
	for name := range found {
		_, listed := callers[name]
		require.True(t, listed || slices.Contains(others, name), "%s reads documents: name the check that shows what it does with a bad document", name)
	}
}

// findCallers returns the functions that call a method with the name of one that reads documents, as "file:function".
func findCallers(t *testing.T) map[string]bool {
	t.Helper()
	const root = "../../.."
	// Programs that test the library and the database, on collections of their own.
	programs := []string{"internal/proof", "internal/tools", "internal/cli/verify", "examples"}
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(programs, name):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && reads(f) {
				found[name+":"+f.Name.Name] = true
			}
		}
		return nil
	}))
	return found
}

// reading are the names of the methods that read several documents: of the store, of a Locker, of a site and of the driver.
var reading = []string{
	"List", "Load", "LoadMajority", "Versions", "list", "readMajority", "Status", "Losses", "Missed", "Deadlocks", "Replaced", "Resources",
	"Find", "FindOne", "Aggregate", "Distinct",
}

// reads reports whether a function calls one of these methods.
func reads(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		found = found || ok && slices.Contains(reading, method.Sel.Name)
		return true
	})
	return found
}
