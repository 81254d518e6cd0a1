// Package storetest checks the commands that a store sends. Servers that speak MongoDB's protocol differ
// in their support for aggregation pipelines in updates, $expr and rare operators, so the store does not
// use them:
//
//	monitor, checker := storetest.Monitor()
//	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(monitor))
//	...
//	require.NoError(t, checker.Err())
package storetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

// remembered is the number of commands that a Checker keeps.
const remembered = 1000

// Command is a command that was about to be sent.
type Command struct {
	// Name is the command, for example "update".
	Name string
	// Body is the whole command.
	Body bson.Raw
}

// Checker checks each command of a client against the commands and operators that the store may send. It
// is safe for concurrent use.
type Checker struct {
	mu       sync.Mutex
	commands []Command
	seen     map[string]int
	refused  []error
}

// Monitor returns a monitor for a client, and the Checker of the client's commands.
func Monitor() (*event.CommandMonitor, *Checker) {
	c := &Checker{seen: map[string]int{}}
	return &event.CommandMonitor{Started: c.started}, c
}

// Err returns the errors of all commands so far, or nil.
func (c *Checker) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.refused...)
}

// Commands returns the latest 1,000 commands, the oldest first.
func (c *Checker) Commands() []Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.commands)
}

// Count returns the number of commands with a name.
func (c *Checker) Count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[name]
}

func (c *Checker) started(_ context.Context, e *event.CommandStartedEvent) {
	body := slices.Clone(e.Command)
	refused := check(e.CommandName, body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[e.CommandName]++
	c.refused = append(c.refused, refused...)
	if len(c.commands) == remembered {
		c.commands = c.commands[1:]
	}
	c.commands = append(c.commands, Command{Name: e.CommandName, Body: body})
}

// allowed lists the operators by command and by the path of the value that contains them. The longest
// matching path counts. Commands that are not listed are refused.
var allowed = map[string]map[string][]string{
	"find": {
		"filter":        {"$in", "$gte", "$gt", "$lt", "$and", "$or"},
		"projection.at": {"$$NOW"},
	},
	"insert": {},
	"update": {
		"updates.q":            {"$all", "$in", "$or", "$gt", "$lte"},
		"updates.arrayFilters": {"$in"},
		"updates.u":            {"$set", "$unset", "$setOnInsert", "$inc", "$max", "$push", "$pull"},
	},
	"createIndexes":   {"indexes.partialFilterExpression": {"$gte"}},
	"getMore":         {},
	"killCursors":     {},
	"listCollections": {},
	"hello":           {},
	"listIndexes":     {},
	"endSessions":     {},
	// Commands of the tests' fixtures.
	"ping":         {},
	"create":       {},
	"delete":       {},
	"drop":         {},
	"dropDatabase": {},
}

func check(name string, body bson.Raw) []error {
	operators, ok := allowed[name]
	if !ok {
		return []error{fmt.Errorf("the store must not send the command %s", name)}
	}
	w := walker{command: name, operators: operators}
	elements, err := body.Elements()
	if err != nil {
		return []error{fmt.Errorf("%s: %w", name, err)}
	}
	for _, e := range elements {
		if !strings.HasPrefix(e.Key(), "$") { // $db, $readPreference, $clusterTime are the driver's
			w.value(e.Key(), e.Value())
		}
	}
	return w.refused
}

// walker visits all values of a command.
type walker struct {
	command   string
	operators map[string][]string
	refused   []error
}

// placeholder is a name of an array filter within the path of a field.
var placeholder = regexp.MustCompile(`^\$\[[a-z][a-z0-9]*\]$`)

func (w *walker) value(path string, v bson.RawValue) {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		elements, err := v.Document().Elements()
		if err != nil {
			w.refuse(path, "a document that cannot be read")
		}
		for _, e := range elements {
			w.key(path, e.Key())
			w.value(path+"."+e.Key(), e.Value())
		}
	case bson.TypeArray:
		if w.command == "update" && path == "updates.u" {
			w.refuse(path, "a pipeline")
		}
		values, err := v.Array().Values()
		if err != nil {
			w.refuse(path, "an array that cannot be read")
		}
		for _, item := range values {
			w.value(path, item)
		}
	case bson.TypeString:
		// In a projection, a string that begins with a dollar sign is an expression.
		text := v.StringValue()
		if strings.HasPrefix(path, "projection") && strings.HasPrefix(text, "$") && !slices.Contains(w.at(path), text) {
			w.refuse(path, text)
		}
	default:
	}
}

func (w *walker) key(path, key string) {
	if strings.HasPrefix(key, "$") {
		if !slices.Contains(w.at(path), key) {
			w.refuse(path, key)
		}
		return
	}
	for part := range strings.SplitSeq(key, ".") {
		if strings.HasPrefix(part, "$") && !(w.command == "update" && placeholder.MatchString(part)) {
			w.refuse(path, key)
		}
	}
}

// at returns the operators that are allowed in the value at a path.
func (w *walker) at(path string) []string {
	for {
		if operators, ok := w.operators[path]; ok {
			return operators
		}
		end := strings.LastIndex(path, ".")
		if end < 0 {
			return nil
		}
		path = path[:end]
	}
}

func (w *walker) refuse(path, what string) {
	w.refused = append(w.refused, fmt.Errorf("%s: %s contains %s", w.command, path, what))
}
