// Package contention tells from traces who kept whom waiting for locks.
package contention
