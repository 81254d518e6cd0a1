package main

import (
	wire "encoding/binary"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// commandProxy passes connections on to the tests' database, and records the names of the commands.
type commandProxy struct {
	uri, target string
	mu          sync.Mutex
	names       map[string]bool
}

func newCommandProxy(t *testing.T) *commandProxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &commandProxy{target: testenv.MongoPrimary(t), uri: testenv.MongoByProxy(t, listener.Addr().String(), nil), names: map[string]bool{}}
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil { // the test has ended
				return
			}
			go p.pass(conn)
		}
	}()
	return p
}

// pass copies one connection in both directions until one side ends it.
func (p *commandProxy) pass(from net.Conn) {
	to, err := (&net.Dialer{}).Dial("tcp", p.target)
	if err != nil {
		_ = from.Close()
		return
	}
	go func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}()
	defer func() { _ = to.Close() }()
	for {
		header := make([]byte, 16)
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		body := make([]byte, wire.LittleEndian.Uint32(header)-16)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		p.record(wire.LittleEndian.Uint32(header[12:]), body)
		if _, err := to.Write(slices.Concat(header, body)); err != nil {
			return
		}
	}
}

// record notes the command of a message: the first key of its document.
func (p *commandProxy) record(opcode uint32, body []byte) {
	const message, kindBody = 2013, 0
	if opcode != message || len(body) < 5 || body[4] != kindBody { // the first question on a connection has an older form
		return
	}
	elements, err := bson.Raw(body[5 : 5+wire.LittleEndian.Uint32(body[5:])]).Elements()
	if err != nil || len(elements) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[elements[0].Key()] = true
}

// needRights returns the commands so far that need a right.
func (p *commandProxy) needRights() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := maps.Clone(p.names)
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
		"ps": reading, "show account/1": reading, "deadlocks": reading, "orphans": reading, "why waiter": reading,
		"init":           {"createIndexes", "find", "insert", "listCollections"},
		"doctor":         {"count", "explain", "find", "listCollections", "listIndexes", "update"}, // an update that inserts also needs the right to insert
		"janitor --once": reading,                                                                  // it has nothing to release
		"release account/1 holder --reason test --yes --now": {"find", "listCollections", "update"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newCommandProxy(t)
			database := l.database
			if name == "init" { // which makes the collection
				database = newLocks(t).database
			}
			args := append(strings.Fields(name), "--database", database)
			_, stdout, stderr := lockstep(t, append(servers(t), "LOCKSTEP_MONGODB_URI="+p.uri), args...)
			sent := p.needRights()
			if name == "doctor" && !slices.Contains(sent, "count") {
				sent = slices.Insert(sent, 0, "count") // it counts only if the server explains that it does not use the index
			}
			require.Equal(t, want, sent, stdout+stderr)
		})
	}
	t.Run("worker", func(t *testing.T) {
		p := newCommandProxy(t)
		s := serveWith(t, append(servers(t), "LOCKSTEP_MONGODB_URI="+p.uri), "--janitor", "1s")
		run := s.foreign(t, func(_ workflow.Context, locks workflow.Context) error {
			_, err := call(locks, "lockstep.Acquire", map[string]any{"resources": []any{map[string]any{"name": "account/1"}}, "schedule": 1, "holdOnly": true})
			return err
		})
		require.NoError(t, get(t, run))
		s.stop(t)
		require.Equal(t, []string{"createIndexes", "find", "insert", "listCollections", "listIndexes", "update"}, p.needRights())
	})
}
