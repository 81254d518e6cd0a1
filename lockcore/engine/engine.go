package engine

import "context"

// Engine applies operations to documents, each atomically. Every method answers with the document that its
// own write left, but for the queue, which it may leave out.
//
// An error is the database's: it leaves open whether the operation took effect. What the operation found
// is not an error; it stands in the document.
type Engine interface {
	Acquire(ctx context.Context, op Acquire) (Document, error)
	Renew(ctx context.Context, op Renew) (Document, error)
	Leave(ctx context.Context, op Leave) (Document, error)
	Release(ctx context.Context, op Release) (Document, error)
	Withdraw(ctx context.Context, op Withdraw) (Document, error)
	// Prepare makes what the engine needs beside documents, such as indexes; it may be called again.
	Prepare(ctx context.Context) error
}
