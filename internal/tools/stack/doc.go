// Package stack starts the servers that Lockstep is developed and tested against, on any machine that can have them.
//
//	go run ./internal/tools/stack/stackctl up       # both servers answer when it returns
//	go run ./internal/tools/stack/stackctl status   # parts, addresses, health, logs
//	go run ./internal/tools/stack/stackctl env      # the addresses, for eval
//	go run ./internal/tools/stack/stackctl down
//
// # Model
//
// A stack is a folder. It holds the data and logs of two servers, a MongoDB and a Temporal server, a record of what was
// started for them (state.json), and a lock. A server is come by in one of several ways, its choices; the first that is
// possible is taken, and the record says why it was not an earlier one. A choice starts parts: processes, or a container.
//
//	server    choice       parts
//	MongoDB   given        -                      what LOCKSTEP_MONGODB_URI names
//	          docker       mongo-container        a one-node replica set
//	          mongod       mongod                 a one-node replica set
//	          documentdb   postgres, ferretdb     MongoDB's protocol, on PostgreSQL
//	Temporal  given        -                      what TEMPORAL_ADDRESS names
//	          path         temporal               `temporal server start-dev`
//	          go-install   temporal               the same, built from its Go module
//
// What takes minutes to make (the programs, a small Debian with PostgreSQL in it) is kept in a cache that all stacks of a
// user share, so that only the first `up` on a machine is slow.
//
// # What holds
//
//   - up is repeatable: it leaves alone what answers, starts again what does not, and changes to another choice only when
//     the one before is broken. Two at once take turns.
//   - A part is on record before it is waited for, so a run that is killed leaves nothing behind that down does not find.
//   - A run that fails or is interrupted ends what it has started, and only that.
//   - down ends only what the record names, and only if it is the same process still: a PID is compared together with the
//     time at which its process started.
//   - A part counts as up when it has answered a question in its own protocol on a port that its own process listens on.
//     A port that another process took between picking and use costs another attempt.
//   - What is half made never gets its final name: it is made elsewhere and renamed.
//   - Nothing is mounted where others see it: PostgreSQL runs in a mount namespace that ends with it.
//   - Everything listens on 127.0.0.1 only.
//
// # What does not
//
// There are no passwords: any process that can reach the loopback interface can read and write these databases. PostgreSQL's
// files are as durable as its defaults make them, so tests of durability are honest on the documentdb choice too, but
// keep nothing there.
package stack
