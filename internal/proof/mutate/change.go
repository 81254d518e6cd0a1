package mutate

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"regexp"
	"slices"
	"strings"
)

// change returns the ranges that a change of a node replaces.
func (d *declaration) change(n ast.Node, do string) ([]Replaced, error) {
	if do == "drop" {
		all, err := d.drop(n)
		if err != nil {
			return nil, err
		}
		var replaced []Replaced
		for _, r := range all {
			replaced = append(replaced, Replaced{Range: r})
		}
		return replaced, nil
	}
	if op, ok := strings.CutPrefix(do, "op "); ok {
		r, err := d.operator(n)
		return []Replaced{{r, op}}, err
	}
	text, err := d.expand(n, do)
	if err == nil && is[ast.Expr](n) && !is[*ast.ExprStmt](d.parents[n]) {
		if _, err = parser.ParseExpr("f(" + text + ")"); err != nil {
			err = fmt.Errorf("an expression must become an expression: %w", err)
		}
	}
	return []Replaced{{d.rangeOf(n), text}}, err
}

// drop returns the ranges to remove if a node is dropped.
func (d *declaration) drop(n ast.Node) ([]Range, error) {
	switch p := d.parents[n].(type) {
	case *ast.ExprStmt:
		return d.drop(p)
	case *ast.BlockStmt, *ast.CommClause, *ast.ForStmt:
		if is[ast.Stmt](n) {
			return []Range{d.rangeOf(n)}, nil
		}
	case *ast.CaseClause:
		if is[ast.Stmt](n) {
			return []Range{d.rangeOf(n)}, nil
		}
		return d.dropOf(n, list(p.List))
	case *ast.IfStmt:
		if n == p.Init {
			return []Range{{d.rangeOf(n).From, d.rangeOf(p.Cond).From}}, nil
		}
	case *ast.BinaryExpr:
		for {
			outer, ok := d.parents[p].(*ast.BinaryExpr)
			if !ok || outer.Op != p.Op || outer.X != ast.Expr(p) {
				return d.dropOf(n, operands(p))
			}
			p = outer
		}
	case *ast.CallExpr:
		return d.dropOf(n, list(p.Args))
	case *ast.CompositeLit:
		return d.dropOf(n, list(p.Elts))
	case *ast.ReturnStmt:
		return d.dropOf(n, list(p.Results))
	case *ast.AssignStmt:
		i := slices.Index(list(p.Lhs), n)
		if i < 0 || len(p.Lhs) != len(p.Rhs) {
			break
		}
		if len(p.Lhs) == 1 {
			return d.drop(p)
		}
		target, err := d.dropOf(n, list(p.Lhs))
		if err != nil {
			return nil, err
		}
		value, err := d.dropOf(p.Rhs[i], list(p.Rhs))
		return append(target, value...), err
	}
	return nil, fmt.Errorf("%q cannot be dropped", d.text(n))
}

// dropOf returns the range to remove if one node of a list is dropped, with a separator.
func (d *declaration) dropOf(n ast.Node, all []ast.Node) ([]Range, error) {
	i, r := slices.Index(all, n), d.rangeOf(n)
	switch {
	case i < 0:
		return nil, fmt.Errorf("%q cannot be dropped", d.text(n))
	case i > 0:
		r.From = d.rangeOf(all[i-1]).To
	case len(all) > 1:
		r.To = d.rangeOf(all[1]).From
	}
	return []Range{r}, nil
}

// operator returns the range of a node's operator.
func (d *declaration) operator(n ast.Node) (Range, error) {
	var pos, length int
	switch n := unparen(n).(type) {
	case *ast.BinaryExpr:
		if len(operands(n)) > 2 {
			return Range{}, errors.New("the operator occurs several times")
		}
		pos, length = d.set.Position(n.OpPos).Offset, len(n.Op.String())
	case *ast.AssignStmt:
		pos, length = d.set.Position(n.TokPos).Offset, len(n.Tok.String())
	case *ast.IncDecStmt:
		pos, length = d.set.Position(n.TokPos).Offset, len(n.Tok.String())
	default:
		return Range{}, fmt.Errorf("%q has no operator", d.text(n))
	}
	return Range{pos, pos + length}, nil
}

func unparen(n ast.Node) ast.Node {
	if e, ok := n.(ast.Expr); ok {
		return ast.Unparen(e)
	}
	return n
}

var placeholder = regexp.MustCompile(`\$\d?`)

// expand returns the new source of a node: the text with its placeholders replaced.
func (d *declaration) expand(n ast.Node, text string) (string, error) {
	inner := unparen(n)
	var numbered []ast.Node
	var function ast.Node
	switch inner := inner.(type) {
	case *ast.BinaryExpr:
		numbered = operands(inner)
	case *ast.CallExpr:
		numbered, function = list(inner.Args), inner.Fun
	case *ast.CompositeLit:
		numbered = list(inner.Elts)
	case *ast.ReturnStmt:
		numbered = list(inner.Results)
	default:
		numbered = operand(inner)
	}
	var missing error
	expanded := placeholder.ReplaceAllStringFunc(text, func(p string) string {
		of := inner
		if p == "$0" {
			of = function
		} else if p != "$" {
			of = nil
			if i := int(p[1] - '1'); i < len(numbered) {
				of = numbered[i]
			}
		}
		if of == nil {
			missing = fmt.Errorf("%q has no %s", d.text(n), p)
			return ""
		}
		if p != text && is[*ast.BinaryExpr](of) {
			return "(" + d.text(of) + ")"
		}
		return d.text(of)
	})
	if d.isOperand(n) && isBinary(expanded) {
		expanded = "(" + expanded + ")"
	}
	return expanded, missing
}

// isOperand reports whether a node is an operand, so that a binary expression instead of it needs parentheses.
func (d *declaration) isOperand(n ast.Node) bool {
	switch d.parents[n].(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr, *ast.SelectorExpr, *ast.StarExpr:
		return true
	}
	return false
}

func isBinary(source string) bool {
	e, err := parser.ParseExpr(source)
	return err == nil && is[*ast.BinaryExpr](e)
}
