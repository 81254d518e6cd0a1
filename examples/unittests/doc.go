// Package unittests is a guarded workflow and its unit tests, which need no server: Temporal's test environment runs it, and
// Lockstep's engine in memory keeps the locks.
package unittests
