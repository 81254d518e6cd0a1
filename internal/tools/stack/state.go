package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// stateVersion changes when an older program could not make sense of the file.
const stateVersion = 1

// State is what a stack remembers between two commands.
type State struct {
	Version int `json:"version"`
	// Up says that the last `up` ended well and no `down` came after it.
	Up       bool     `json:"up"`
	Mongo    Endpoint `json:"mongo"`
	Temporal Endpoint `json:"temporal"`
	// Parts are in the order in which they were started.
	Parts []Part `json:"parts"`
	// Ports are kept after `down`, so that addresses that someone wrote down go on to work.
	Ports map[string]map[string]int `json:"ports,omitempty"`
}

// Endpoint is where a client connects.
type Endpoint struct {
	// Kind is which of the choices was taken, such as "docker".
	Kind string `json:"kind,omitempty"`
	// Address is a MongoDB URI, or the host and port of a Temporal server.
	Address string `json:"address,omitempty"`
	UI      string `json:"ui,omitempty"`
	// Why says what made this choice, and what ruled out the ones before it.
	Why []string `json:"why,omitempty"`
}

// Part is one thing that this stack started: a process, or a container.
type Part struct {
	Name string `json:"name"`
	PID  int    `json:"pid,omitempty"`
	// Start tells the process from a later one with the same PID.
	Start     string         `json:"start,omitempty"`
	Container string         `json:"container,omitempty"`
	Ports     map[string]int `json:"ports"`
	Log       string         `json:"log"`
	// Interrupt asks for a quick end: PostgreSQL waits for its clients on the usual SIGTERM.
	Interrupt bool `json:"interrupt,omitempty"`
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
		return State{Version: stateVersion}, nil
	}
	if err != nil {
		return State{}, err
	}
	var st State
	if err := json.Unmarshal(data, &st); err != nil {
		return State{}, fmt.Errorf("%s cannot be read (%w); end what it names and remove it", path, err)
	}
	if st.Version != stateVersion {
		return State{}, fmt.Errorf("%s was written by another version of this program; end what it names and remove it", path)
	}
	return st, nil
}

// save replaces the file as a whole, so that a program killed in the middle leaves the old one.
func (s *State) save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	// The URI of the user's own MongoDB may hold a password.
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
