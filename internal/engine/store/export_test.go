package store

import "context"

// For tests in package store_test.
var (
	CheckCollation = checkCollation
	ListFilter     = listFilter
	Decode         = decode
	Encode         = encode
	Successor      = successor
	NotSent        = notSent
	DuplicateAt    = duplicateAt
)

func (m *Mongo) FirstConflict(ctx context.Context, swaps []Swap) (index int, known bool) {
	return m.firstConflict(ctx, swaps)
}
