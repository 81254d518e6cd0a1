package docscheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
)

// Exported looks for names that users see and no comment explains. A comment on a group explains its members; Error,
// as a method, says what it does by being there.
func Exported(t Tree) ([]Problem, error) {
	var problems []Problem
	dirs := t.goFiles()
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if !isPublic(dir) {
			continue
		}
		documented := false
		for _, name := range dirs[dir] {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, t.abs(name), nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			documented = documented || file.Doc != nil
			for _, decl := range file.Decls {
				for _, id := range undocumented(decl) {
					problems = append(problems, Problem{name, fset.Position(id.Pos()).Line, id.Name + " has no comment"})
				}
			}
		}
		if !documented {
			problems = append(problems, Problem{dir, 0, "the package has no comment"})
		}
	}
	return problems, nil
}

func undocumented(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || d.Name.Name != "Error" && receiver(d).IsExported()) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		if d.Doc != nil {
			return nil
		}
		var ids []*ast.Ident
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Doc == nil && s.Comment == nil {
					ids = append(ids, s.Name)
				}
			case *ast.ValueSpec:
				if s.Doc == nil && s.Comment == nil {
					ids = append(ids, s.Names...)
				}
			}
		}
		return slices.DeleteFunc(ids, func(id *ast.Ident) bool { return !id.IsExported() })
	}
	return nil
}

// receiver is the name of the type that a method belongs to.
func receiver(d *ast.FuncDecl) *ast.Ident {
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e
		default:
			panic(fmt.Sprintf("docscheck: a receiver of type %T", e)) // the parser takes no other
		}
	}
}
