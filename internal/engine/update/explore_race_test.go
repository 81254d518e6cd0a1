//go:build race

package update

// The race detector makes the exploration several times slower.
func init() { shallower = 1 }
