package docscheck

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// Places finds words in any file that only one machine understands. The words are those of Words.
func Places(t Tree, words []string) []Problem {
	var patterns []string
	for _, w := range words {
		patterns = append(patterns, regexp.QuoteMeta(w))
	}
	// A longer word is another word: /rooted, my/work, ${DIR}/work.
	pattern := regexp.MustCompile(`(?:^|[^\w.})-])(` + strings.Join(patterns, "|") + `)(?:[^\w-]|$)`)
	var problems []Problem
	for _, name := range t.names("") {
		if strings.ContainsRune(t.Files[name], 0) {
			continue // a binary file
		}
		for i, line := range strings.Split(t.Files[name], "\n") {
			for _, m := range pattern.FindAllStringSubmatch(line, -1) {
				problems = append(problems, Problem{name, i + 1, fmt.Sprintf("%s is a place of one machine", m[1])})
			}
		}
	}
	return problems
}

var urlHost = regexp.MustCompile(`^https?://([a-zA-Z0-9.-]+)`)

// Words returns the places of this machine: the folders of the checkout and of the user, and the hosts from which Go, npm and apt
// are configured to download.
func Words(ctx context.Context, root string) []string {
	words := []string{"/" + "root", "/" + "work"} // joined, so that this file does not name them
	for _, dir := range []string{root, os.Getenv("HOME")} {
		if filepath.IsAbs(dir) && dir != "/" {
			words = append(words, dir)
		}
	}
	var sources strings.Builder
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*") // a constant pattern
	for _, file := range append(files, "/etc/apt/sources.list") {
		data, _ := os.ReadFile(file) //nolint:gosec // a missing file names no host
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, "://") {
				sources.WriteString(line)
			}
		}
	}
	for _, argv := range [][]string{{"go", "env", "GOPROXY", "GOSUMDB"}, {"npm", "config", "get", "registry"}} {
		out, _ := exec.CommandContext(ctx, argv[0], argv[1:]...).Output() // a missing program downloads nothing
		sources.Write(out)
	}
	isSeparator := func(r rune) bool { return r == ',' || r == '|' || unicode.IsSpace(r) }
	for source := range strings.FieldsFuncSeq(sources.String(), isSeparator) {
		host := source
		if m := urlHost.FindStringSubmatch(source); m != nil {
			host = m[1]
		} else if !strings.Contains(source, ".") || strings.Contains(source, "/") {
			continue // GOSUMDB is a host without a scheme
		}
		if !strings.HasPrefix(host, "127.") && host != "localhost" {
			words = append(words, host)
		}
	}
	return words
}
