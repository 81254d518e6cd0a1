package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/temporal-lockstep/lockstep/internal/proof/mutate"
)

// file lists what is covered of one file.
type file struct {
	// path begins with the import path of the package.
	path string
	// functions are in the order of the file.
	functions []string
	// lines is the number of lines of covered statements.
	lines int
}

// block is a row of a coverage profile: statements that run together, by lines and columns.
type block struct{ line, column, endLine, endColumn, statements, count int }

// covered returns the files that count and of which a profile covers a statement. The sources are in root, the folder of the module.
func covered(profile io.Reader, root string) ([]file, error) {
	blocks := map[string][]block{}
	rows := bufio.NewScanner(profile)
	for rows.Scan() {
		path, rest, _ := strings.Cut(rows.Text(), ":")
		if path == "mode" || !counts(path) {
			continue
		}
		var b block
		_, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.line, &b.column, &b.endLine, &b.endColumn, &b.statements, &b.count)
		if err != nil {
			return nil, fmt.Errorf("%q in the profile: %w", rows.Text(), err)
		}
		if b.statements > 0 && b.count > 0 {
			blocks[path] = append(blocks[path], b)
		}
	}
	var files []file
	for _, path := range slices.Sorted(maps.Keys(blocks)) {
		f, err := coveredFile(path, filepath.Join(root, strings.TrimPrefix(path, module)), blocks[path])
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, rows.Err()
}

// coveredFile counts the covered blocks of one file. A function literal belongs to the declaration that contains it.
func coveredFile(path, source string, blocks []block) (file, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, source, nil, parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	f, lines := file{path: path}, map[int]bool{}
	for _, b := range blocks {
		for line := b.line; line <= b.endLine; line++ {
			lines[line] = true
		}
	}
	for _, d := range parsed.Decls {
		first, last := set.Position(d.Pos()).Line, set.Position(d.End()).Line
		if slices.ContainsFunc(blocks, func(b block) bool { return first <= b.line && b.line <= last }) {
			f.functions = append(f.functions, name(d))
		}
	}
	f.lines = len(lines)
	return f, nil
}

// name returns the name of a function, with its receiver's type, or that of a variable with a function literal.
func name(d ast.Decl) string {
	f, isFunc := d.(*ast.FuncDecl)
	if !isFunc {
		if values, ok := d.(*ast.GenDecl).Specs[0].(*ast.ValueSpec); ok {
			return values.Names[0].Name
		}
		return "literal"
	}
	return mutate.NameOf(f)
}
