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

// Log appends records to the log of one process, a file with one record in each line as JSON. It is safe for concurrent use.
type Log[R any] struct {
	mu       sync.Mutex
	file     *os.File
	complete func(*R)
}

// OpenLog opens the log of a process in dir, and creates it if it does not exist. The function complete is called with each record
// before it is written.
func OpenLog[R any](dir, process string, complete func(*R)) (*Log[R], error) {
	f, err := os.OpenFile(filepath.Join(dir, process+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // our own
	return &Log[R]{file: f, complete: complete}, err
}

// Write appends a record with one write, so that a kill leaves no part of it. It panics if it cannot, because there is nothing
// to check without a log.
func (l *Log[R]) Write(r *R) {
	l.complete(r)
	line, err := json.Marshal(r)
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
func (l *Log[R]) Close() error { return l.file.Close() }

// ReadLogs returns the records of all logs in dir by the time that at returns for each. It ignores an incomplete last line.
func ReadLogs[R any](dir string, at func(*R) int64) (all []R, err error) {
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
			var r R
			if err := json.Unmarshal(line, &r); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b R) int { return cmp.Compare(at(&a), at(&b)) })
	return all, nil
}
