package docscheck

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

var (
	inlineLink    = regexp.MustCompile(`\]\(<?([^()\s<>]+)>?(?: +"[^"]*")?\)`)
	referenceLink = regexp.MustCompile(`^ {0,3}\[[^\]]+\]: +<?([^\s<>]+)>?`)
)

// Links follows every relative link of the tree's Markdown files.
func Links(t Tree) ([]Problem, error) {
	pages := map[string]page{}
	if err := t.each(".md", func(name, text string) error {
		pages[name] = parsePage(name, text)
		return nil
	}); err != nil {
		return nil, err
	}
	var problems []Problem
	for _, name := range t.Files {
		for i, line := range pages[name].prose {
			targets := inlineLink.FindAllStringSubmatch(line, -1)
			targets = append(targets, referenceLink.FindAllStringSubmatch(line, -1)...)
			for _, m := range targets {
				if text := follow(t, pages, name, m[1]); text != "" {
					problems = append(problems, Problem{name, i + 1, text})
				}
			}
		}
	}
	return problems, nil
}

// follow says what is wrong with a link that stands on the page from; "" is nothing.
func follow(t Tree, pages map[string]page, from, link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return fmt.Sprintf("the link %s: %v", link, err)
	}
	if u.Scheme != "" || u.Host != "" {
		return "" // elsewhere
	}
	to := from
	if u.Path != "" {
		to = path.Join(path.Dir(from), u.Path)
	}
	switch page, ok := pages[to]; {
	case strings.HasPrefix(u.Path, "/") || to == ".." || strings.HasPrefix(to, "../"):
		return fmt.Sprintf("the link %s leads out of the repository", link)
	case !t.has(to):
		return fmt.Sprintf("the link %s leads nowhere: there is no %s", link, to)
	case ok && u.Fragment != "" && !page.headings[u.Fragment]:
		return fmt.Sprintf("the link %s leads nowhere: %s has no such heading", link, to)
	}
	return ""
}
