package mutate

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// resolve returns the node at a path.
func (d *declaration) resolve(path string) (ast.Node, error) {
	n := d.node
	words := strings.Fields(path)
	for len(words) > 0 {
		word, number := words[0], 1
		words = words[1:]
		if len(words) > 0 {
			if i, err := strconv.Atoi(words[0]); err == nil {
				number, words = i, words[1:]
			}
		}
		all, err := step(n, word)
		if err != nil {
			return nil, err
		}
		if number < 1 || number > len(all) {
			return nil, fmt.Errorf("there is no %q: line %d has %d", fmt.Sprint(word, " ", number), d.set.Position(n.Pos()).Line, len(all))
		}
		n = all[number-1]
	}
	return n, nil
}

// step returns the nodes among which the number of a step selects.
func step(n ast.Node, word string) ([]ast.Node, error) {
	if isKind, ok := kinds[word]; ok {
		return below(n, isKind), nil
	}
	if !isPart(word) {
		return nil, fmt.Errorf("%q is neither a kind nor a part of a node", word)
	}
	var found []ast.Node
	ast.Inspect(n, func(n ast.Node) bool {
		if found == nil && n != nil {
			found = parts(n, word)
		}
		return found == nil
	})
	return found, nil
}

// below returns the nodes of a kind below a node, in the order of the source.
func below(n ast.Node, isKind func(ast.Node) bool) (found []ast.Node) {
	ast.Inspect(n, func(child ast.Node) bool {
		if child != nil && child != n && isKind(child) {
			found = append(found, child)
		}
		return true
	})
	return found
}

var kinds = map[string]func(ast.Node) bool{
	"if":       is[*ast.IfStmt],
	"for":      either(is[*ast.ForStmt], is[*ast.RangeStmt]),
	"switch":   either(is[*ast.SwitchStmt], is[*ast.TypeSwitchStmt], is[*ast.SelectStmt]),
	"case":     either(is[*ast.CaseClause], is[*ast.CommClause]),
	"return":   is[*ast.ReturnStmt],
	"assign":   either(is[*ast.AssignStmt], is[*ast.IncDecStmt]),
	"continue": func(n ast.Node) bool { b, ok := n.(*ast.BranchStmt); return ok && b.Tok == token.CONTINUE },
	"call":     is[*ast.CallExpr],
	"func":     is[*ast.FuncLit],
	"literal":  is[*ast.CompositeLit],
	"const":    is[*ast.BasicLit],
}

func is[T ast.Node](n ast.Node) bool { _, ok := n.(T); return ok }

func either(kinds ...func(ast.Node) bool) func(ast.Node) bool {
	return func(n ast.Node) bool {
		for _, isKind := range kinds {
			if isKind(n) {
				return true
			}
		}
		return false
	}
}

func isPart(word string) bool {
	switch word {
	case "stmt", "init", "cond", "post", "tag", "value", "target", "fun", "arg", "elem", "x":
		return true
	}
	return binary(word) != token.ILLEGAL
}

// binary returns the binary operator that is spelled like this.
func binary(word string) token.Token {
	for op := token.ADD; op <= token.GEQ; op++ {
		if op.String() == word && op.Precedence() > token.LowestPrec {
			return op
		}
	}
	return token.ILLEGAL
}

// parts returns the parts of a node that a word names.
func parts(n ast.Node, word string) []ast.Node {
	if op := binary(word); op != token.ILLEGAL {
		if b, ok := n.(*ast.BinaryExpr); ok && b.Op == op {
			return operands(b)
		}
		return nil
	}
	switch word {
	case "stmt":
		return statements(n)
	case "value":
		return values(n)
	case "x":
		return operand(n)
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		return pick(word, "init", one(n.Init), "cond", one(n.Cond))
	case *ast.ForStmt:
		return pick(word, "init", one(n.Init), "cond", one(n.Cond), "post", one(n.Post))
	case *ast.SwitchStmt:
		return pick(word, "init", one(n.Init), "tag", one(n.Tag))
	case *ast.CaseClause:
		return pick(word, "cond", list(n.List))
	case *ast.AssignStmt:
		return pick(word, "target", list(n.Lhs))
	case *ast.CallExpr:
		return pick(word, "fun", one(n.Fun), "arg", list(n.Args))
	case *ast.CompositeLit:
		return pick(word, "elem", list(n.Elts))
	}
	return nil
}

// pick returns the value of a key in pairs of keys and values.
func pick(word string, pairs ...any) []ast.Node {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == word {
			return pairs[i+1].([]ast.Node)
		}
	}
	return nil
}

// one returns the node, unless it is nil.
func one[T interface {
	comparable
	ast.Node
}](n T) []ast.Node {
	var none T
	if n == none {
		return nil
	}
	return []ast.Node{n}
}

func list[T ast.Node](all []T) (nodes []ast.Node) {
	for _, n := range all {
		nodes = append(nodes, n)
	}
	return nodes
}

// statements returns the statements of a block, or of the block of a function, a loop, a case or an if statement.
func statements(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.BlockStmt:
		if len(n.List) > 0 && kinds["case"](n.List[0]) {
			return nil
		}
		return list(n.List)
	case *ast.FuncDecl:
		return list(n.Body.List)
	case *ast.FuncLit:
		return list(n.Body.List)
	case *ast.IfStmt:
		return list(n.Body.List)
	case *ast.ForStmt:
		return list(n.Body.List)
	case *ast.RangeStmt:
		return list(n.Body.List)
	case *ast.CaseClause:
		return list(n.Body)
	case *ast.CommClause:
		return list(n.Body)
	}
	return nil
}

func values(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.ReturnStmt:
		return list(n.Results)
	case *ast.AssignStmt:
		return list(n.Rhs)
	case *ast.ValueSpec:
		return list(n.Values)
	case *ast.KeyValueExpr:
		return one(n.Value)
	case *ast.RangeStmt:
		return one(n.X)
	}
	return nil
}

func operand(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return one(n.X)
	case *ast.IndexExpr:
		return one(n.X)
	case *ast.SliceExpr:
		return one(n.X)
	case *ast.StarExpr:
		return one(n.X)
	case *ast.UnaryExpr:
		return one(n.X)
	case *ast.TypeAssertExpr:
		return one(n.X)
	}
	return nil
}

// operands returns the operands of a && b && c.
func operands(b *ast.BinaryExpr) []ast.Node {
	if left, ok := b.X.(*ast.BinaryExpr); ok && left.Op == b.Op {
		return append(operands(left), b.Y)
	}
	return []ast.Node{b.X, b.Y}
}
