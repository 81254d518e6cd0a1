package docscheck

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Places looks for what only one machine has: its folders, and where it gets packages from. The words are those of
// Words, or any that a test makes up.
func Places(t Tree, words []string) ([]Problem, error) {
	patterns := make([]string, 0, len(words))
	for _, w := range words {
		patterns = append(patterns, regexp.QuoteMeta(w))
	}
	if len(patterns) == 0 {
		return nil, nil
	}
	// A word that goes on is another word: /rooted, my/work, ${DIR}/work.
	found := regexp.MustCompile(`(?:^|[^\w.})-])(` + strings.Join(patterns, "|") + `)(?:[^\w-]|$)`)
	var problems []Problem
	err := t.each("", func(name, text string) error {
		if strings.ContainsRune(text, 0) {
			return nil // no text
		}
		for i, line := range strings.Split(text, "\n") {
			for _, m := range found.FindAllStringSubmatch(line, -1) {
				problems = append(problems, Problem{name, i + 1, fmt.Sprintf("%s is a place of one machine", m[1])})
			}
		}
		return nil
	})
	return problems, err
}

var host = regexp.MustCompile(`https?://([a-zA-Z0-9.-]+)`)

// Words are the places of this machine: where the checkout and the user's files are, and the hosts from which Go, npm
// and apt fetch packages, as they are set up here.
func Words(ctx context.Context, root string) []string {
	// Joined, so that this file does not name them.
	words := []string{"/" + "root", "/" + "work"}
	for _, dir := range []string{root, os.Getenv("HOME")} {
		if filepath.IsAbs(dir) && dir != "/" {
			words = append(words, dir)
		}
	}
	sources, _ := filepath.Glob("/etc/apt/sources.list.d/*") // a constant pattern
	for _, file := range append(sources, "/etc/apt/sources.list") {
		data, _ := os.ReadFile(file) //nolint:gosec // a file that is not there names no host
		words = append(words, hosts(string(data))...)
	}
	for _, argv := range [][]string{{"go", "env", "GOPROXY", "GOSUMDB"}, {"npm", "config", "get", "registry"}} {
		out, _ := exec.CommandContext(ctx, argv[0], argv[1:]...).Output() // a program that is not there fetches nothing
		words = append(words, hosts(string(out))...)
		for name := range strings.FieldsFuncSeq(string(out), func(r rune) bool { return r == ',' || r == '|' || r <= ' ' }) {
			// GOSUMDB is a host's name alone.
			if strings.Contains(name, ".") && !strings.Contains(name, "/") {
				words = append(words, name)
			}
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

func hosts(text string) []string {
	var names []string
	for _, m := range host.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "127.") && m[1] != "localhost" {
			names = append(names, m[1])
		}
	}
	return names
}
