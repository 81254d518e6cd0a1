package docscheck

import (
	"cmp"
	"context"
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

	"github.com/temporal-lockstep/lockstep/internal/proof/mutate"
)

// Snippets compiles all Go blocks of the Markdown files as packages of the module in the folder module. It also compares blocks of
// any language with the file that their comment names. It writes nothing to the folder.
func Snippets(ctx context.Context, t Tree, module string) ([]Problem, error) {
	var files []string
	problems := t.pages(func(p page, report reporter) {
		for _, b := range p.blocks {
			var err error
			if source, ok := strings.CutPrefix(b.comment, "snippet from "); ok {
				err = t.isPartOf(b, source)
			} else if b.lang == "go" {
				var file string
				if file, err = completeFile(p.name, b); err == nil {
					files = append(files, file)
				}
			}
			if err != nil {
				report(b.line, "%v", err)
			}
		}
	})
	if len(files) == 0 {
		return problems, nil
	}
	found, err := compile(ctx, module, files)
	return append(problems, found...), err
}

// isPartOf returns an error if a file does not contain the lines of a block.
func (t Tree) isPartOf(b block, source string) error {
	text, ok := t.Files[source]
	switch {
	case !ok:
		return fmt.Errorf("%s is missing", source)
	case !strings.HasSuffix(source, "."+b.lang):
		return fmt.Errorf("%s is not a %s file", source, b.lang)
	case !strings.Contains("\n"+text, "\n"+strings.TrimRight(b.text, "\n")+"\n"):
		return fmt.Errorf("%s does not contain the snippet", source)
	}
	return nil
}

var fragmentMark = regexp.MustCompile(`(?m)^[ \t]*\.\.\.[ \t]*$`)

// completeFile returns the Go file of a block. Its line directives make the compiler report positions in the Markdown file.
func completeFile(page string, b block) (string, error) {
	formatted, err := format.Source([]byte(b.text))
	if err != nil {
		return "", err
	}
	if strings.TrimRight(string(formatted), "\n") != strings.TrimRight(b.text, "\n") {
		return "", fmt.Errorf("the snippet is not formatted; gofmt returns\n%s", formatted)
	}
	file := fmt.Sprintf("//line %s:%d\n", page, b.line) + b.text
	if !strings.HasPrefix(b.text, "package ") {
		wrapper, ok := strings.CutPrefix(b.comment, "snippet")
		if !ok {
			return "", errors.New("the snippet is a fragment without a comment <!-- snippet … --> that completes it")
		}
		at := fragmentMark.FindAllStringIndex(wrapper, -1)
		if len(at) != 1 {
			return "", errors.New(`the comment <!-- snippet … --> must have one line "..." for the fragment`)
		}
		file = wrapper[:at[0][0]] + "\n" + file + "\n//line wrapper:1\n" + wrapper[at[0][1]:]
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), "", file, parser.ImportsOnly)
	if err != nil {
		return "", err
	}
	for _, spec := range parsed.Imports {
		if name, _ := strconv.Unquote(spec.Path.Value); strings.Contains("/"+name+"/", "/internal/") {
			return "", fmt.Errorf("the snippet imports %s, which its readers cannot import", name)
		}
	}
	return file, nil
}

var compilerMessage = regexp.MustCompile(`^(\S+\.md):(\d+)(?::\d+)?: (.*)$`)

// compile builds each file as a package of its own, by an overlay of the module.
func compile(ctx context.Context, module string, files []string) ([]Problem, error) {
	tmp, err := os.MkdirTemp("", "snippets")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a temporary folder
	sources := map[string]string{}
	var packages []string
	for i, file := range files {
		dir := fmt.Sprintf("internal/tools/docscheck/snippet%d", i)
		sources[filepath.Join(module, dir, "snippet.go")] = file
		packages = append(packages, "./"+dir)
	}
	overlay, err := mutate.WriteOverlay(tmp, sources)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", os.DevNull, "-overlay", overlay}, packages...)...)
	cmd.Dir = module
	out, failed := cmd.CombinedOutput()
	if failed == nil {
		return nil, nil
	}
	var problems []Problem
	for line := range strings.Lines(string(out)) {
		if m := compilerMessage.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			n, _ := strconv.Atoi(m[2])
			problems = append(problems, Problem{m[1], n, m[3]})
		}
	}
	if len(problems) == 0 {
		return nil, fmt.Errorf("compile the snippets: %w\n%s", failed, out)
	}
	// The compiler builds the packages in parallel.
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return problems, nil
}
