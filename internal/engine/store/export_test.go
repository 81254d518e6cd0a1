package store

// For tests in package store_test.
var (
	CheckCollation = checkCollation
	ListFilter     = listFilter
	Decode         = decode
	Encode         = encode
	Successor      = successor
	NotSent        = notSent
	StoppedAt      = stoppedAt
)

// SetTime is Loaded.complete.
func (l *Loaded) SetTime() { l.complete() }
