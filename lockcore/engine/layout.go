package engine

import "fmt"

// LayoutError says that a collection is not in the layout that it was opened with. Nothing was written.
type LayoutError struct {
	// Collection is its name.
	Collection string
	// Shared tells that it was opened as one that is shared with mongo-lock clients.
	Shared bool
	// Reason is how that was seen, and what would help.
	Reason string
}

// Error names the collection, the layout and the reason.
func (e *LayoutError) Error() string {
	layout := "lockstep's own layout"
	if e.Shared {
		layout = "the layout of mongo-lock"
	}
	return fmt.Sprintf("lockstep: the collection %s is not in %s: %s", e.Collection, layout, e.Reason)
}
