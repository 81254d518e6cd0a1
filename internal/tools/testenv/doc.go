// Package testenv gives tests the real servers that they need.
//
// A test asks for what it uses and gets it for itself alone:
//
//	db := testenv.Mongo(t)         // a new database, dropped when the test ends
//	c := testenv.Temporal(t)       // a client, closed when the test ends
//	queue := testenv.TaskQueue(t)  // a name that no other test uses
//
// The servers are those that LOCKSTEP_MONGODB_URI and TEMPORAL_ADDRESS name, as `make test` sets them. Where a variable
// is not set, a container is started, once per test process, by testcontainers (the images: LOCKSTEP_MONGO_IMAGE and
// LOCKSTEP_TEMPORAL_IMAGE). Where that is not possible either the test fails and says what would help: a test that is
// skipped proves nothing, and goes unseen.
//
// A package whose tests use a server has
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// which removes the containers after the last test, and fails when goroutines are left over.
package testenv
