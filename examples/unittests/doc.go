// Package unittests shows unit tests of a guarded workflow. They need no server: Temporal's test environment runs the
// workflow, and an in-memory store has the locks.
package unittests
