// Package mutate puts defects into Go source. An edit selects a node by its position in the syntax tree, so that renaming a variable and
// moving a function to another file do not affect it.
//
// An [Edit] names a package, a declaration of it, the path to a node and the change. For instance
//
//	{"internal/engine/rules", "Acquire.Apply", "if 2 cond && 1", "false"}
//
// replaces the first operand of && in the condition of the second if statement by false.
//
// A path is a list of steps, each a word and a number, by default 1. There are two sorts of words:
//
//   - Kinds: if, for, switch (also select), case, return, assign (also ++ and --), continue, call, func (a function literal), literal (a
//     composite literal), const (a number or a string). "if 2" is the second if statement below the node that the steps so far have
//     reached, at any depth, in the order of the source.
//   - Parts: stmt (a statement of a block), init, cond (of if, for and case), post, tag (of switch), value (of an assignment, a return, a
//     declaration, a range or a key), target (of an assignment), fun and arg (of a call), elem (of a composite literal), x (the operand of a
//     selector, an index or a unary operator), and every binary operator. "arg 2" is the second argument of the node itself, or of the
//     first node below it that has arguments. "&& 3" is the third operand of a && b && c.
//
// The path "" is the declaration itself. A change is one of
//
//   - drop: removes a statement, case, operand, argument, element or return value, or a target of an assignment with its value
//   - op TOKEN: replaces the operator of an expression or an assignment
//   - any other text: replaces the node. In it, $ is the source of the node, $1, $2, … its operands, arguments, elements or return values,
//     and $0 the function of a call. So "$ && false" makes a condition never hold, "$2" keeps the second operand only, "return; $" returns
//     before a statement, and "$0($2, $1)" swaps arguments.
package mutate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Edit is a change of one node.
type Edit struct {
	// Package is the package's folder, relative to the root of the module.
	Package string
	// In is the declaration: a function, Type.Method, or a name that the package declares.
	In string
	// At is the path to the node.
	At string
	// Do is the change.
	Do string
}

func (e Edit) String() string {
	return fmt.Sprintf("%s: %s: %s: %s", filepath.Clean(e.Package), e.In, cmp.Or(e.At, "all of it"), e.Do)
}

// Change is an edit in terms of the source.
type Change struct {
	// File is the path of the file, and Line the line of the change.
	File string
	Line int
	// Decl is the declaration's range in the file.
	Decl Range
	// Node is the source of the node before the change.
	Node string
	// Replaced are the ranges that the change replaces, in the order of the source.
	Replaced []Replaced
}

// Range is a range of bytes of a file.
type Range struct{ From, To int }

// Replaced is a range with its new source.
type Replaced struct {
	Range
	New string
}

// Find finds the node of an edit in the source below root.
func (e Edit) Find(root string) (*Change, error) {
	d, err := find(filepath.Join(root, e.Package), e.In)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e, err)
	}
	n, err := d.resolve(e.At)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e, err)
	}
	c := &Change{File: d.file, Line: d.set.Position(n.Pos()).Line, Decl: d.rangeOf(d.node), Node: d.text(n)}
	if c.Replaced, err = d.change(n, e.Do); err != nil {
		return nil, fmt.Errorf("%s: %w", e, err)
	}
	return c, nil
}

// Apply returns the source of the files that edits change, by path.
func Apply(root string, edits ...Edit) (map[string]string, error) {
	replaced := map[string][]Replaced{}
	for _, e := range edits {
		c, err := e.Find(root)
		if err != nil {
			return nil, err
		}
		replaced[c.File] = append(replaced[c.File], c.Replaced...)
	}
	sources := map[string]string{}
	for file, all := range replaced {
		source, err := os.ReadFile(file) //nolint:gosec // source of this module
		if err != nil {
			return nil, err
		}
		changed, err := Replace(string(source), all)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", edits, err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), file, changed, parser.SkipObjectResolution); err != nil {
			return nil, fmt.Errorf("%v: the result is not Go: %w", edits, err)
		}
		sources[file] = changed
	}
	return sources, nil
}

// Replace returns a source with ranges replaced.
func Replace(source string, all []Replaced) (string, error) {
	slices.SortStableFunc(all, func(a, b Replaced) int { return cmp.Compare(a.From, b.From) })
	var out strings.Builder
	done := 0
	for _, r := range all {
		if r.From < done {
			return "", errors.New("the changes overlap")
		}
		out.WriteString(source[done:r.From] + r.New)
		done = r.To
	}
	return out.String() + source[done:], nil
}

// Overlay writes the changed files to dir, as WriteOverlay does.
func Overlay(root, dir string, edits ...Edit) (string, error) {
	sources, err := Apply(root, edits...)
	if err != nil {
		return "", err
	}
	return WriteOverlay(dir, sources)
}

// WriteOverlay writes the sources of files, by their paths, to dir, and a file for the flag -overlay of the go command. It returns the path
// of that file.
func WriteOverlay(dir string, sources map[string]string) (string, error) {
	replace := map[string]string{}
	for file, source := range sources {
		original, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[original], []byte(source), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}

// declaration is a declaration in its file.
type declaration struct {
	file, source string
	set          *token.FileSet
	node         ast.Node
	// parents are the parents of the nodes of the declaration.
	parents map[ast.Node]ast.Node
}

// find finds a declaration in the files of a package, without its tests.
func find(dir, name string) (*declaration, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var found []*declaration
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file) //nolint:gosec // source of this module
		if err != nil {
			return nil, err
		}
		if !strings.Contains(string(source), name[strings.LastIndexByte(name, '.')+1:]) {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, node := range declared(parsed, name) {
			found = append(found, &declaration{file, string(source), set, node, parentsIn(node)})
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d declarations of %s in %s, not one", len(found), name, dir)
	}
	return found[0], nil
}

// declared returns the declarations of a name in a file.
func declared(file *ast.File, name string) (found []ast.Node) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if NameOf(d) == name {
				found = append(found, d)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					if slices.ContainsFunc(spec.Names, func(i *ast.Ident) bool { return i.Name == name }) {
						found = append(found, spec)
					}
				case *ast.TypeSpec:
					if spec.Name.Name == name {
						found = append(found, spec)
					}
				}
			}
		}
	}
	return found
}

// NameOf returns the name of a function, or Type.Method.
func NameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	for typ := f.Recv.List[0].Type; ; {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

func parentsIn(root ast.Node) map[ast.Node]ast.Node {
	parents := map[ast.Node]ast.Node{}
	var open []ast.Node
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			open = open[:len(open)-1]
			return true
		}
		if len(open) > 0 {
			parents[n] = open[len(open)-1]
		}
		open = append(open, n)
		return true
	})
	return parents
}

func (d *declaration) rangeOf(n ast.Node) Range {
	return Range{d.set.Position(n.Pos()).Offset, d.set.Position(n.End()).Offset}
}

func (d *declaration) text(n ast.Node) string {
	r := d.rangeOf(n)
	return d.source[r.From:r.To]
}
