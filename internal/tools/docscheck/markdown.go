package docscheck

import (
	"regexp"
	"strings"
)

// page is a Markdown file, cut into what the checks look at.
type page struct {
	name string
	// blocks are the fenced blocks of code.
	blocks []block
	// prose are the lines outside of blocks and comments, with the code in them blanked out; "" elsewhere.
	prose []string
	// spans are the pieces of code in the prose.
	spans []span
	// headings are the anchors of the headings.
	headings map[string]bool
}

type block struct {
	lang string
	// line is that of the first line of text, counted from 1.
	line int
	text string
	// comment is the HTML comment that stands right before the block, without its marks; "" if there is none.
	comment string
}

type span struct {
	line int
	text string
}

var (
	fence    = regexp.MustCompile("^( *)(```+|~~~+) *([A-Za-z0-9_+-]*)")
	codeSpan = regexp.MustCompile("``[^`]+``|`[^`]+`")
	heading  = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
)

func parsePage(name, text string) page {
	p := page{name: name, headings: map[string]bool{}}
	lines := strings.Split(text, "\n")
	p.prose = make([]string, len(lines))
	comment := ""
	for i := 0; i < len(lines); i++ {
		switch m := fence.FindStringSubmatch(lines[i]); {
		case strings.HasPrefix(strings.TrimSpace(lines[i]), "<!--"):
			end := i
			for end < len(lines)-1 && !strings.Contains(lines[end], "-->") {
				end++
			}
			comment = strings.Join(lines[i:end+1], "\n")
			comment = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(comment), "<!--"), "-->")
			i = end
		case m != nil:
			first := i + 1
			for i++; i < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[i]), m[2]); i++ {
			}
			p.blocks = append(p.blocks, block{
				lang: m[3], line: first + 1, text: unindent(lines[first:min(i, len(lines))], m[1]), comment: comment,
			})
			comment = ""
		default:
			if strings.TrimSpace(lines[i]) != "" {
				comment = ""
			}
			p.addProse(i, lines[i])
		}
	}
	return p
}

func (p *page) addProse(i int, line string) {
	if m := heading.FindStringSubmatch(line); m != nil {
		p.headings[anchor(m[1])] = true
	}
	p.prose[i] = codeSpan.ReplaceAllStringFunc(line, func(s string) string {
		p.spans = append(p.spans, span{line: i + 1, text: strings.Trim(s, "` ")})
		return strings.Repeat(" ", len(s))
	})
}

// commands are the lines of code that a reader may type into a shell: those of blocks in no language or a shell's, and
// the pieces of code in the prose.
func (p *page) commands() []span {
	all := p.spans
	for _, b := range p.blocks {
		switch b.lang {
		case "", "sh", "bash", "shell", "console":
			for i, line := range strings.Split(b.text, "\n") {
				line, _, _ = strings.Cut(line, " #") // a comment
				all = append(all, span{line: b.line + i, text: strings.TrimPrefix(strings.TrimSpace(line), "$ ")})
			}
		}
	}
	return all
}

// anchor is the name by which a link finds a heading.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unindent(lines []string, indent string) string {
	out := make([]string, 0, len(lines))
	for _, line := range lines {
		out = append(out, strings.TrimPrefix(line, indent))
	}
	return strings.Join(out, "\n")
}
