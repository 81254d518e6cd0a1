package runstate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"
)

// Only State.schedule schedules Lockstep's own activities: another call would lack its context, its queue, or its splitting.
func TestSchedule_IsTheOnlyScheduler(t *testing.T) {
	t.Parallel()
	callers := map[string]int{}
	for _, dir := range []string{".", "../../interceptors", "../../workflows", "../../worker"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(f, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "ExecuteActivity" || s.Sel.Name == "ExecuteLocalActivity") {
						callers[filepath.Base(path)+" "+f.Name.Name]++
					}
					return true
				})
			}
			return nil
		}))
	}
	require.Equal(t, map[string]int{
		"own.go schedule":                     1,
		"compensate.go runUndo":               2, // the user's activity, in its session or outside
		"saga.go Step":                        1, // the user's activity
		"interceptor.go ExecuteActivity":      5, // passed on, by the workflow's side and by what is first on the worker's
		"interceptor.go ExecuteLocalActivity": 1, // passed on
		"activity_inbound.go execute":         2, // the worker's side
		"activity_inbound.go runStep":         1,
	}, callers)
}

type values map[any]any

type fakeContext struct {
	workflow.Context
	values values
}

func (c fakeContext) Value(key any) any { return c.values[key] }

type userKey struct{}

// The activity has the user's values, but neither the session nor the options of the context.
func TestOwnContext_HidesSessionAndOptions(t *testing.T) {
	t.Parallel()
	of := func(v values) workflow.Context { return fakeContext{values: v} }
	c := ownContext{of(values{userKey{}: "tenant", "session": &workflow.SessionInfo{}, optionsKey: "of the step"}), of(values{optionsKey: "of the run"})}
	require.Equal(t, "tenant", c.Value(userKey{}))
	require.Nil(t, c.Value("session"))
	require.Equal(t, "of the run", c.Value(optionsKey))
}
