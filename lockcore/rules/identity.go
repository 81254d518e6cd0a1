package rules

import (
	"fmt"
	"time"
)

// Identity is the document by which a collection identifies itself.
type Identity struct {
	// ID is different for every collection, also for collections of the same name elsewhere.
	ID string `bson:"id"`
	// Version is the version of the layout.
	Version int `bson:"version"`
	// At is the server's time of the read.
	At time.Time `bson:"at,omitempty"`
}

// LayoutVersion is the version of the layout that this package describes. A collection with another
// one is refused with a *LayoutError.
const LayoutVersion = 3

// LayoutError reports a collection that is not in the layout of this version. Nothing was written.
type LayoutError struct {
	// Collection is its name.
	Collection string
	// Found describes what was found in it.
	Found string
	// Help describes what to do.
	Help string
}

// Error names the collection, what was found, and what to do.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("lockstep: the collection %q has another layout: %s. %s", e.Collection, e.Found, e.Help)
}
