// Package testenv provides the real servers that tests need.
//
// Each test gets a database, a client and a task queue of its own:
//
//	db := testenv.Mongo(t)         // a new database, dropped when the test ends
//	c := testenv.Temporal(t)       // a client, closed when the test ends
//	queue := testenv.TaskQueue(t)  // a name that no other test uses; the test fails if a workflow task on it has failed
//
// LOCKSTEP_MONGODB_URI and TEMPORAL_ADDRESS name the servers; `make test` sets both. If a variable is not set, testcontainers starts
// a container, once per test process, with the image of LOCKSTEP_MONGO_IMAGE or LOCKSTEP_TEMPORAL_IMAGE. If that is impossible, the
// test fails and lists the remedies. It is never skipped, because a skipped test proves nothing.
//
// A package whose tests use a server has
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// which removes the containers after the last test, and fails if goroutines have leaked.
package testenv
