package harness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Log appends values to the log of one process, a file with one JSON value in each line. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	file *os.File
}

// OpenLog opens the log of a process in dir, and creates it if it does not exist.
func OpenLog(dir, process string) (*Log, error) {
	f, err := os.OpenFile(filepath.Join(dir, process+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // our own
	return &Log{file: f}, err
}

// Append appends a value with one write, so that a kill leaves no part of it. It panics if it cannot, because there is nothing
// to check without a log.
func (l *Log) Append(value any) {
	line, err := json.Marshal(value)
	if err == nil {
		l.mu.Lock()
		_, err = l.file.Write(append(line, '\n'))
		l.mu.Unlock()
	}
	if err != nil {
		panic(fmt.Sprintf("the log %s: %v", l.file.Name(), err))
	}
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// ReadLogs returns the values of all logs in dir by the time that at returns for each. It ignores an incomplete last line.
func ReadLogs[T any](dir string, at func(*T) int64) (all []T, err error) {
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
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(at(&a), at(&b)) })
	return all, nil
}
