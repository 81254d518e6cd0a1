package docscheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is the files that a check looks at.
type Tree struct {
	// Root is the folder that the files are in.
	Root string
	// Files are the names of the files, relative to Root and with slashes, sorted.
	Files []string
}

// Problem is something that a check found wrong.
type Problem struct {
	File string
	// Line is counted from 1; 0 is the whole file.
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

// Checkout is the tree of a Git checkout: what is committed, and what would be.
func Checkout(ctx context.Context, root string) (Tree, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return Tree{}, fmt.Errorf("list the files of %s by git: %w", root, err)
	}
	t := Tree{Root: root}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		// What was removed and not committed yet is still in Git's list.
		if info, err := os.Lstat(t.abs(name)); err == nil && info.Mode().IsRegular() {
			t.Files = append(t.Files, name)
		}
	}
	slices.Sort(t.Files)
	t.Files = slices.Compact(t.Files)
	return t, nil
}

func (t Tree) abs(name string) string { return filepath.Join(t.Root, filepath.FromSlash(name)) }

func (t Tree) read(name string) (string, error) {
	data, err := os.ReadFile(t.abs(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is missing", name)
	}
	return string(data), err
}

// has reports whether name is a file or a folder of the tree.
func (t Tree) has(name string) bool {
	return name == "." || slices.ContainsFunc(t.Files, func(f string) bool {
		return f == name || strings.HasPrefix(f, name+"/")
	})
}

// each calls look for every file whose name ends in suffix.
func (t Tree) each(suffix string, look func(name, text string) error) error {
	for _, name := range t.Files {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		text, err := t.read(name)
		if err != nil {
			return err
		}
		if err := look(name, text); err != nil {
			return err
		}
	}
	return nil
}

// isPublic reports whether a folder holds code that users import.
func isPublic(dir string) bool {
	return !slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool {
		return part == "internal" || part == "testdata" || (part != "." && strings.HasPrefix(part, "."))
	})
}

// goFiles lists the Go files that are no tests, by folder.
func (t Tree) goFiles() map[string][]string {
	dirs := map[string][]string{}
	for _, name := range t.Files {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			dirs[path.Dir(name)] = append(dirs[path.Dir(name)], name)
		}
	}
	return dirs
}
