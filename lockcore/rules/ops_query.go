// Package rules is a stub for the store's development; the real one has the lock rules too.
package rules

import "time"

// Query says which documents to list. A store may list more than was asked for.
type Query struct {
	// Resource is one name, and Prefix the beginning of names.
	Resource, Prefix string
	// LockID, the beginning LockIDPrefix, and Owner are those of a party that holds or waits.
	LockID, LockIDPrefix, Owner string
	// Waiting selects documents with a queue, Contended those with more than plain holds.
	Waiting, Contended bool
}

// IdleGrain is what idleAt is rounded up to, so that most writes leave its index alone.
const IdleGrain = time.Hour
