// Package stack starts the servers that Lockstep is developed and tested against: a MongoDB and a Temporal server.
//
//	go run ./internal/tools/stack/stackctl up       # returns when both servers answer
//	go run ./internal/tools/stack/stackctl status   # parts, addresses, health, logs
//	go run ./internal/tools/stack/stackctl env      # the addresses, for eval
//	go run ./internal/tools/stack/stackctl down
//
// # Model
//
// A stack is a folder. It holds the data and the logs of the servers, a record of the started parts (state.json), and a lock
// file. Each server has several choices: ways to get it. Up takes the first choice that is possible, and records why earlier ones
// were rejected. A choice starts parts, which are processes or containers.
//
//	server    choice       parts
//	MongoDB   given        -                      the server of LOCKSTEP_MONGODB_URI
//	          docker       mongo-container        a one-node replica set
//	          mongod       mongod                 a one-node replica set
//	          documentdb   postgres, ferretdb     MongoDB's protocol on PostgreSQL
//	Temporal  given        -                      the server of TEMPORAL_ADDRESS
//	          path         temporal               `temporal server start-dev`
//	          go-install   temporal               the same, built from its Go module
//
// Programs and the PostgreSQL root take minutes to build. They are kept in a cache that all stacks of a user share.
//
// # Guarantees
//
//   - Up is idempotent. It keeps parts that answer and restarts parts that do not. It changes the choice only if the recorded one
//     is broken, or if the user names a server, which must answer before any part ends. Runs on the same folder wait for each other.
//   - A part is recorded before Up waits for it, so Down finds the parts of a run that was killed.
//   - A run that fails or is interrupted ends the parts that it has started, and no others.
//   - Down ends only recorded processes. A process is identified by its PID and its start time.
//   - A part is up when it answers in its own protocol on a port on which its own process listens. If another process takes a
//     port before the part does, Up tries another port.
//   - Files are built under a temporary name and renamed when they are complete.
//   - PostgreSQL's mounts exist only in a mount namespace that ends with it.
//   - All servers listen on 127.0.0.1 only.
//
// # Not guaranteed
//
// The servers have no passwords: any local process can read and write the databases. Do not keep data in them.
package stack
