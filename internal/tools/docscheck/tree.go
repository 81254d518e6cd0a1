package docscheck

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Tree has the files that a check reads.
type Tree struct {
	// Root is the folder of the files.
	Root string
	// Files has the text of each file by its name, which is relative to Root and has slashes.
	Files map[string]string
}

// Problem is a mistake that a check has found.
type Problem struct {
	File string
	// Line is counted from 1. 0 means the whole file.
	Line int
	Text string
}

// String returns "file:line: text".
func (p Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Checkout reads the files of a Git checkout, including new ones that Git does not ignore.
func Checkout(ctx context.Context, root string) (Tree, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return Tree{}, fmt.Errorf("list the files of %s by git: %w", root, err)
	}
	t := Tree{Root: root, Files: map[string]string{}}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		path := filepath.Join(root, filepath.FromSlash(name))
		// Git also lists deleted files until the deletion is committed.
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of the checkout
		if err != nil {
			return Tree{}, err
		}
		t.Files[name] = string(text)
	}
	return t, nil
}

// names returns the names of the files with a suffix, sorted.
func (t Tree) names(suffix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.Files)), func(name string) bool { return !strings.HasSuffix(name, suffix) })
}

// reporter reports a problem at a line of a page.
type reporter func(line int, format string, args ...any)

// pages calls check for each Markdown file, and returns the problems that check reports.
func (t Tree) pages(check func(p page, report reporter)) (problems []Problem) {
	for _, name := range t.names(".md") {
		check(parsePage(name, t.Files[name]), func(line int, format string, args ...any) {
			problems = append(problems, Problem{name, line, fmt.Sprintf(format, args...)})
		})
	}
	return problems
}

// set has the first groups of all matches in some texts.
type set map[string]bool

func (s set) add(pattern *regexp.Regexp, text string) set {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		s[m[1]] = true
	}
	return s
}

// page is a parsed Markdown file.
type page struct {
	name string
	// blocks are the fenced code blocks.
	blocks []block
	// prose are the lines outside code blocks and comments, with blanks instead of inline code.
	prose []span
	// code are the pieces of inline code.
	code []span
	// headings are the anchors of the headings.
	headings set
}

// span is a text and its line, counted from 1.
type span struct {
	line int
	text string
}

// block is a fenced code block. line is the first line of its text, and comment the HTML comment before the block.
type block struct {
	span
	lang, comment string
}

var (
	fence      = regexp.MustCompile("^( *)(```+|~~~+) *([A-Za-z0-9_+-]*)")
	inlineCode = regexp.MustCompile("``[^`]+``|`[^`]+`")
	heading    = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
)

func parsePage(name, text string) page {
	p := page{name: name, headings: set{}}
	lines := strings.Split(text, "\n")
	comment := ""
	for i := 0; i < len(lines); i++ {
		line, first := strings.TrimSpace(lines[i]), i
		m := fence.FindStringSubmatch(lines[i])
		switch {
		case strings.HasPrefix(line, "<!--"):
			for i < len(lines)-1 && !strings.Contains(lines[i], "-->") {
				i++
			}
			comment = strings.TrimSpace(strings.Join(lines[first:i+1], "\n"))
			comment = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(comment, "<!--"), "-->"))
		case m != nil:
			var body []string
			for i++; i < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[i]), m[2]); i++ {
				body = append(body, strings.TrimPrefix(lines[i], m[1]))
			}
			p.blocks = append(p.blocks, block{span{first + 2, strings.Join(body, "\n")}, m[3], comment})
			comment = ""
		case line != "":
			comment = ""
			p.addProse(span{i + 1, lines[i]})
		}
	}
	return p
}

func (p *page) addProse(s span) {
	if m := heading.FindStringSubmatch(s.text); m != nil {
		p.headings[anchor(m[1])] = true
	}
	for _, code := range inlineCode.FindAllString(s.text, -1) {
		p.code = append(p.code, span{s.line, strings.Trim(code, "` ")})
	}
	s.text = inlineCode.ReplaceAllStringFunc(s.text, func(code string) string { return strings.Repeat(" ", len(code)) })
	p.prose = append(p.prose, s)
}

// anchor returns the fragment of a link to a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// shellLines returns the code that a reader may type into a shell: inline code, and the lines of blocks without a language or
// with a shell's.
func (p page) shellLines() []span {
	all := p.code
	for _, b := range p.blocks {
		if !slices.Contains([]string{"", "sh", "bash", "shell", "console"}, b.lang) {
			continue
		}
		for i, line := range strings.Split(b.text, "\n") {
			line, _, _ = strings.Cut(line, " #") // a comment
			all = append(all, span{b.line + i, strings.TrimPrefix(strings.TrimSpace(line), "$ ")})
		}
	}
	return all
}
