package store

// For tests in package store_test.
var (
	CheckCollation = checkCollation
	ListPipeline   = listPipeline
	Decode         = decode
	Encode         = encode
	Successor      = successor
	NotSent        = notSent
)
