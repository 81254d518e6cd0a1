package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// State is the record of a stack, stored as state.json.
type State struct {
	// Up is set if the last Up succeeded and was not followed by Down.
	Up       bool     `json:"up"`
	Mongo    Endpoint `json:"mongo"`
	Temporal Endpoint `json:"temporal"`
	// Parts are in the order in which they were started.
	Parts []Part `json:"parts"`
	// Ports are the last ports of each part. They are kept after Down and used again, so that addresses remain valid.
	Ports map[string]map[string]int `json:"ports,omitempty"`
}

// Endpoint is the address of a server.
type Endpoint struct {
	// Kind is the choice that provides the server, such as "docker".
	Kind string `json:"kind,omitempty"`
	// Address is a MongoDB URI, or the host and port of a Temporal server.
	Address string `json:"address,omitempty"`
	UI      string `json:"ui,omitempty"`
	// Why has the reason for this choice, after the reasons against the earlier ones.
	Why []string `json:"why,omitempty"`
}

// Part is a process or a container that the stack has started.
type Part struct {
	Name string `json:"name"`
	PID  int    `json:"pid,omitempty"`
	// Start identifies the process together with the PID.
	Start     string         `json:"start,omitempty"`
	Container string         `json:"container,omitempty"`
	Ports     map[string]int `json:"ports"`
	Log       string         `json:"log"`
	// started is set if this run has started it.
	started bool
}

func (s *State) part(name string) (Part, bool) {
	i := slices.IndexFunc(s.Parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		return Part{}, false
	}
	return s.Parts[i], true
}

func (s *State) put(p Part) {
	s.remove(p.Name)
	s.Parts = append(s.Parts, p)
	if s.Ports == nil {
		s.Ports = map[string]map[string]int{}
	}
	s.Ports[p.Name] = p.Ports
}

func (s *State) remove(name string) {
	s.Parts = slices.DeleteFunc(s.Parts, func(p Part) bool { return p.Name == name })
}

func loadState(dir string) (State, error) {
	path := filepath.Join(dir, "state.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	var st State
	if err := json.Unmarshal(data, &st); err != nil {
		return State{}, fmt.Errorf("%s cannot be read (%w); end the processes that it names and remove it", path, err)
	}
	return st, nil
}

// save replaces the file. A program that is killed leaves the old or the new file. Only the user can read it, because the
// MongoDB URI may contain a password.
func (s *State) save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".state-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(append(data, '\n')); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), filepath.Join(dir, "state.json"))
}

// lockFile takes an exclusive lock on a file. The kernel releases it when the process ends. If another process has the lock,
// lockFile calls waiting once and waits until ctx ends.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	// A blocking call could not be cancelled, so the lock is tried repeatedly.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		ok, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if ok {
			return func() { f.Close() }, nil
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
