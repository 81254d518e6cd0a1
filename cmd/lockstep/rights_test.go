package main

import (
	wire "encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// commands are the names of the commands that clients send through a Wire.
type commands struct {
	mu    sync.Mutex
	names map[string]bool
}

// recordCommands returns the URI of the tests' database through a Wire, and the commands that it sees.
func recordCommands(t *testing.T) (uri string, c *commands) {
	t.Helper()
	w, uri := testenv.MongoByWire(t)
	c = &commands{names: map[string]bool{}}
	w.OnRequest(func(data []byte) harness.Moment {
		c.record(data)
		return harness.Never
	})
	return uri, c
}

// record notes the command of a client's message: the first key of its document.
func (c *commands) record(data []byte) {
	const header, message, kindBody = 16, 2013, 0
	if len(data) < header+9 {
		return
	}
	opcode, body := wire.LittleEndian.Uint32(data[12:]), data[header:]
	if opcode != message || body[4] != kindBody { // the first question on a connection has an older form
		return
	}
	elements, err := bson.Raw(body[5 : 5+wire.LittleEndian.Uint32(body[5:])]).Elements()
	if err != nil || len(elements) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[elements[0].Key()] = true
}

// needRights returns the commands so far that need a right.
func (c *commands) needRights() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := maps.Clone(c.names)
	// MongoDB requires no right for these; getMore and killCursors need those of the command that made the cursor.
	for _, name := range []string{"hello", "isMaster", "ping", "buildInfo", "endSessions", "getMore", "killCursors", "abortTransaction"} {
		delete(names, name)
	}
	return slices.Sorted(maps.Keys(names))
}

// The sets are those of the table in docs/security.md: change both together.
func TestRights_OfEachProgram(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "holder", "", "account/1")
	l.ask(t, "waiter", "", "account/1")
	l.prints(t, "init")
	reading := []string{"find", "listCollections"}
	for name, want := range map[string][]string{
		"ps": reading, "show account/1": reading, "deadlocks": reading, "orphans": reading, "why waiter": reading, "policies": reading,
		"init":            {"createIndexes", "find", "insert", "listCollections"},
		"doctor":          {"count", "explain", "find", "listCollections", "listIndexes", "update"}, // an update that inserts also needs the right to insert
		"janitor --once":  reading,                                                                  // it has nothing to release
		"limit printer 3": {"find", "listCollections", "update"},
		"pool phones a b": {"find", "listCollections", "update"},
		"pool desks":      reading,
		"release account/1 holder --reason test --yes --now": {"find", "listCollections", "update"},
	} {
		t.Run(name, func(t *testing.T) {
			uri, c := recordCommands(t)
			database := l.database
			if name == "init" { // which makes the collection
				database = newLocks(t).database
			}
			args := append(strings.Fields(name), "--database", database)
			_, stdout, stderr := lockstep(t, append(servers(t), "LOCKSTEP_MONGODB_URI="+uri), args...)
			sent := c.needRights()
			if name == "doctor" && !slices.Contains(sent, "count") {
				sent = slices.Insert(sent, 0, "count") // it counts only if the server explains that it does not use the index
			}
			require.Equal(t, want, sent, stdout+stderr)
		})
	}
	t.Run("worker", func(t *testing.T) {
		uri, c := recordCommands(t)
		s := serveWith(t, append(servers(t), "LOCKSTEP_MONGODB_URI="+uri), "--janitor", "1s")
		run := s.foreign(t, acquireAccount)
		require.NoError(t, get(t, run))
		s.stop(t)
		require.Equal(t, []string{"createIndexes", "find", "insert", "listCollections", "listIndexes", "update"}, c.needRights())
	})
}
