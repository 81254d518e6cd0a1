package engine

import "fmt"

// LayoutError says that a collection is not in the layout of this version. Nothing was written.
type LayoutError struct {
	// Collection is its name.
	Collection string
	// Found is what was found in it.
	Found string
	// Help is what to do.
	Help string
}

// Error names the collection, what was found, and what to do.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("lockstep: the collection %q has another layout: %s. %s", e.Collection, e.Found, e.Help)
}
