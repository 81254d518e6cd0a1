// Package jsonlog keeps the logs of programs that are killed: one file for each process, with one JSON value in each line.
package jsonlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// File appends values to the log of one process. It is safe for concurrent use.
type File struct {
	mu   sync.Mutex
	file *os.File
}

// Open opens the log of a process in dir, and creates it if it does not exist.
func Open(dir, process string) (*File, error) {
	f, err := os.OpenFile(filepath.Join(dir, process+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // our own
	return &File{file: f}, err
}

// Append appends a value with one write, so that a kill leaves no part of it. It panics if it cannot, because there is nothing
// to check without a log.
func (f *File) Append(value any) {
	line, err := json.Marshal(value)
	if err == nil {
		f.mu.Lock()
		_, err = f.file.Write(append(line, '\n'))
		f.mu.Unlock()
	}
	if err != nil {
		panic(fmt.Sprintf("the log %s: %v", f.file.Name(), err))
	}
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Read returns the values of all logs in dir, file by file. It ignores an incomplete last line.
func Read[T any](dir string) (all []T, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name) //nolint:gosec // our own
		if err != nil {
			return nil, err
		}
		whole := text[:bytes.LastIndexByte(text, '\n')+1]
		for line := range bytes.Lines(whole) {
			var value T
			if err := json.Unmarshal(line, &value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, value)
		}
	}
	return all, nil
}
