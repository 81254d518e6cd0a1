package docscheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Defaults compares a table of settings on the page name with what the function withDefaults of the Go file source sets.
// The table's rows begin with the field in backquotes and its default: | `TTL` | 30 s |.
func Defaults(t Tree, name, source string) ([]Problem, error) {
	set, err := defaultsOf(t, source)
	if err != nil {
		return nil, err
	}
	text, err := t.read(name)
	if err != nil {
		return nil, err
	}
	var problems []Problem
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		m := settingRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		seen[m[1]] = true
		if want, ok := set[m[1]]; ok && want != m[2] {
			problems = append(problems, Problem{name, i + 1, fmt.Sprintf("%s defaults to %s, not %s", m[1], want, m[2])})
		}
	}
	for field := range set {
		if !seen[field] {
			problems = append(problems, Problem{name, 0, fmt.Sprintf("the table of settings has no row for %s", field)})
		}
	}
	return problems, nil
}

var settingRow = regexp.MustCompile("^\\| `(\\w+)` +\\| ([^|]*[^| ]) +\\|")

// defaultsOf reads the calls setDefault(&c.Field, value), in which a value is a number, a time, or max of several.
func defaultsOf(t Tree, source string) (map[string]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), t.abs(source), nil, 0)
	if err != nil {
		return nil, err
	}
	e := evaluator{fields: map[string]int64{}}
	set := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 || name(call.Fun) != "setDefault" {
			return true
		}
		address, ok := call.Args[0].(*ast.UnaryExpr)
		if !ok {
			return true
		}
		field := name(address.X)
		e.isTime = false
		value := e.value(call.Args[1])
		e.fields[field] = value
		set[field] = count(value)
		if e.isTime {
			set[field] = inWords(time.Duration(value))
		}
		return true
	})
	if e.failed != nil {
		return nil, fmt.Errorf("%s: %w", source, e.failed)
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("%s sets no defaults by setDefault(&c.Field, value)", source)
	}
	return set, nil
}

// evaluator computes the few kinds of constants that defaults are.
type evaluator struct {
	fields map[string]int64 // those that were set before
	isTime bool             // the last value was a time
	failed error
}

var units = map[string]time.Duration{
	"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

func (e *evaluator) value(x ast.Expr) int64 {
	switch x := x.(type) {
	case *ast.BasicLit:
		if n, err := strconv.ParseInt(x.Value, 0, 64); err == nil {
			return n
		}
	case *ast.BinaryExpr:
		if x.Op == token.MUL {
			return e.value(x.X) * e.value(x.Y)
		}
	case *ast.SelectorExpr:
		if unit, ok := units[x.Sel.Name]; ok && name(x.X) == "time" {
			e.isTime = true
			return int64(unit)
		}
		if value, ok := e.fields[x.Sel.Name]; ok {
			return value
		}
	case *ast.CallExpr:
		if name(x.Fun) == "max" {
			var most int64
			for _, arg := range x.Args {
				most = max(most, e.value(arg))
			}
			return most
		}
	}
	e.failed = fmt.Errorf("a default is no number, time or max of them: %T", x)
	return 0
}

// name is the last part of an identifier.
func name(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

func inWords(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}

// count writes 2000 as 2,000.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
