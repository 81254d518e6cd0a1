package docscheck

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// snippet is a block of Go, made a whole file.
type snippet struct {
	file string
	line int
	text string
}

// Snippets compiles every block of Go in the tree's Markdown files, as packages of the module in the folder module, and finds those
// of any language that are said to come from a file there.
// Nothing is written there: the compiler is told of files that stand elsewhere.
func Snippets(ctx context.Context, t Tree, module string) ([]Problem, error) {
	var problems []Problem
	var snippets []snippet
	err := t.each(".md", func(name, text string) error {
		page := parsePage(name, text)
		for _, b := range page.blocks {
			if source, ok := strings.CutPrefix(strings.TrimSpace(b.comment), "snippet from "); ok {
				problems = append(problems, shown(t, name, b, source)...)
				continue
			}
			if b.lang != "go" {
				continue
			}
			s, err := complete(name, b)
			if err != nil {
				problems = append(problems, Problem{name, b.line, err.Error()})
				continue
			}
			snippets = append(snippets, s)
		}
		return nil
	})
	if err != nil || len(snippets) == 0 {
		return problems, err
	}
	found, err := compile(ctx, module, snippets)
	// The compiler builds packages side by side, and complains in the order in which it ends them.
	slices.SortStableFunc(found, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return append(problems, found...), err
}

// shown reports whether a block stands in a file of its language as it is, in which it is compiled, and often run too.
func shown(t Tree, name string, b block, source string) []Problem {
	text, err := t.read(source)
	switch {
	case err != nil:
		return []Problem{{name, b.line, err.Error()}}
	case !strings.HasSuffix(source, "."+b.lang):
		return []Problem{{name, b.line, fmt.Sprintf("%s is no %s file", source, b.lang)}}
	case !strings.Contains("\n"+text, "\n"+strings.TrimRight(b.text, "\n")+"\n"):
		return []Problem{{name, b.line, "the snippet does not stand in " + source + " as it is here"}}
	}
	return nil
}

var place = regexp.MustCompile(`(?m)^[ \t]*\.\.\.[ \t]*$`)

// complete makes a file of a block. Its line comments make the compiler's complaints point into the Markdown file.
func complete(name string, b block) (snippet, error) {
	s := snippet{file: name, line: b.line}
	formatted, err := format.Source([]byte(b.text))
	if err != nil {
		return s, err
	}
	if strings.TrimRight(string(formatted), "\n") != strings.TrimRight(b.text, "\n") {
		return s, fmt.Errorf("the snippet is not formatted; gofmt makes it\n%s", formatted)
	}
	here := fmt.Sprintf("//line %s:%d\n", name, b.line)
	if strings.HasPrefix(b.text, "package ") {
		s.text = here + b.text
	} else {
		wrapper, ok := strings.CutPrefix(strings.TrimSpace(b.comment), "snippet")
		if !ok {
			return s, errors.New("the snippet is a fragment, and no <!-- snippet … --> before it says what it stands in")
		}
		at := place.FindAllStringIndex(wrapper, -1)
		if len(at) != 1 {
			return s, errors.New(`the <!-- snippet … --> must have one line "..." where the fragment goes`)
		}
		s.text = wrapper[:at[0][0]] + "\n" + here + b.text + "\n//line wrapper:1\n" + wrapper[at[0][1]:]
	}
	return s, onlyPublic(s.text)
}

func onlyPublic(text string) error {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
	if err != nil {
		return err
	}
	for _, spec := range file.Imports {
		if name, _ := strconv.Unquote(spec.Path.Value); strings.Contains("/"+name+"/", "/internal/") {
			return fmt.Errorf("the snippet imports %s, which its readers cannot", name)
		}
	}
	return nil
}

var complaint = regexp.MustCompile(`^(\S+\.md):(\d+)(?::\d+)?: (.*)$`)

// compile builds all snippets, each a package of its own.
func compile(ctx context.Context, module string, snippets []snippet) ([]Problem, error) {
	tmp, err := os.MkdirTemp("", "snippets")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // what stays is in the system's temporary folder
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	args := []string{"build", "-o", os.DevNull, "-overlay", filepath.Join(tmp, "overlay.json")}
	for i, s := range snippets {
		dir := fmt.Sprintf("internal/tools/docscheck/snippet%d", i)
		written := filepath.Join(tmp, fmt.Sprintf("snippet%d.go", i))
		if err := os.WriteFile(written, []byte(s.text), 0o600); err != nil {
			return nil, err
		}
		overlay.Replace[filepath.Join(module, dir, "snippet.go")] = written
		args = append(args, "./"+dir)
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(tmp, "overlay.json"), data, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, nil
	}
	return complaints(string(out), err)
}

func complaints(out string, err error) ([]Problem, error) {
	var problems []Problem
	for line := range strings.Lines(out) {
		if m := complaint.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			n, _ := strconv.Atoi(m[2])
			problems = append(problems, Problem{m[1], n, m[3]})
		}
	}
	if len(problems) == 0 {
		return nil, fmt.Errorf("compile the snippets: %w\n%s", err, out)
	}
	return problems, nil
}
