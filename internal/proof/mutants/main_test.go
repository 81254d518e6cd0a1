package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/proof/mutate"
)

// TestMutants_Source_Compiles checks that each edit finds its node, and that the package compiles with it.
func TestMutants_Source_Compiles(t *testing.T) {
	t.Chdir("../../..") // the edits name packages from the repository's root
	packages := listPackages(t)
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(packages[path].Export) })
	for _, list := range [][]mutant{mutants, sagaMutants, productMutants} {
		for i := range list {
			t.Run(list[i].what, func(t *testing.T) {
				overlay, err := mutate.Overlay(".", t.TempDir(), list[i].changes()...)
				require.NoError(t, err)
				text, err := os.ReadFile(overlay)
				require.NoError(t, err)
				var changed struct{ Replace map[string]string }
				require.NoError(t, json.Unmarshal(text, &changed))
				for file := range changed.Replace {
					checkTypes(t, set, imports, packages[filepath.Dir(file)], changed.Replace)
				}
			})
		}
	}
}

// listed is the answer of go list about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listPackages returns the packages of this module and their dependencies, by import path and by folder.
func listPackages(t *testing.T) map[string]listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./lockcore/...", "./worker", "./internal/cli/...").Output()
	require.NoError(t, err)
	all := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all[p.ImportPath], all[p.Dir] = p, p
	}
}

// checkTypes checks the types of a package, with some of its files replaced.
func checkTypes(t *testing.T, set *token.FileSet, imports types.Importer, p listed, replaced map[string]string) {
	t.Helper()
	require.NotEmpty(t, p.GoFiles, p.Dir)
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		if to, ok := replaced[path]; ok {
			path = to
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	_, err := (&types.Config{Importer: imports}).Check(p.ImportPath, set, files, nil)
	require.NoError(t, err)
}
