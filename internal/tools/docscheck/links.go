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

// Links finds relative links in Markdown files that have no target.
func Links(t Tree) []Problem {
	headings := map[string]set{}
	t.pages(func(p page, _ reporter) { headings[p.name] = p.headings })
	return t.pages(func(p page, report reporter) {
		for _, s := range p.prose {
			links := inlineLink.FindAllStringSubmatch(s.text, -1)
			for _, m := range append(links, referenceLink.FindAllStringSubmatch(s.text, -1)...) {
				if text := t.brokenLink(headings, p.name, m[1]); text != "" {
					report(s.line, "%s", text)
				}
			}
		}
	})
}

// brokenLink returns the problem of a link on the page from, or "".
func (t Tree) brokenLink(headings map[string]set, from, link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return fmt.Sprintf("the link %s: %v", link, err)
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	to := from
	if u.Path != "" {
		to = path.Join(path.Dir(from), u.Path)
	}
	switch {
	case strings.HasPrefix(u.Path, "/") || to == ".." || strings.HasPrefix(to, "../"):
		return fmt.Sprintf("the link %s leads out of the repository", link)
	case !t.exists(to):
		return fmt.Sprintf("the link %s is broken: there is no %s", link, to)
	case u.Fragment != "" && headings[to] != nil && !headings[to][u.Fragment]:
		return fmt.Sprintf("the link %s is broken: %s has no such heading", link, to)
	}
	return ""
}

// exists reports whether name is a file or a folder.
func (t Tree) exists(name string) bool {
	if _, ok := t.Files[name]; ok || name == "." {
		return true
	}
	for file := range t.Files {
		if strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return false
}
