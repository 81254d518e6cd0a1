package engine

import (
	"context"
	"iter"
	"time"
)

// Engine applies operations to documents, each atomically. Every method answers with the document
// that its own write left. The answer may leave out the queue; the records, unless the outcome is
// Lost or Superseded or the request only refreshes; and if the request took effect, what others
// hold, but not their claims, which the caller is to wake.
//
// An error is the database's: it leaves open whether the operation took effect. What the operation
// found is not an error; it stands in the document.
type Engine interface {
	Acquire(ctx context.Context, op Acquire) (Document, error)
	Renew(ctx context.Context, op Renew) (Document, error)
	Leave(ctx context.Context, op Leave) (Document, error)
	Release(ctx context.Context, op Release) (Document, error)
	Withdraw(ctx context.Context, op Withdraw) (Document, error)
	// AcquireAll grants a request several resources, in this order and in few commands, up to the
	// first that is not simply free: that one is to be asked for by Acquire, and those after it are as
	// they were. It answers with the documents of those that were granted. After an error some may
	// have been, in this order. An engine may stop earlier, also before the first.
	AcquireAll(ctx context.Context, ops []Acquire) ([]Document, error)
	// RenewAll extends many parts, in few commands, and says of each whether it is known to have been
	// extended. It settles nothing. If it says no, Renew says why.
	RenewAll(ctx context.Context, ops []Renew) ([]bool, error)
	// Read answers with the documents of the resources that have one, queue included, with the
	// server's time in At. It reads what a majority has.
	Read(ctx context.Context, resources ...string) ([]Document, error)
	// List streams documents in the order of their names, with the server's time in At.
	List(ctx context.Context, q Query) iter.Seq2[Document, error]
	// Identify returns what the collection says of itself. The first call draws its ID.
	Identify(ctx context.Context) (Identity, error)
	// Prepare makes what the engine needs beside documents, such as indexes; it may be called again.
	Prepare(ctx context.Context) error
}

// Identity is what a collection says of itself.
type Identity struct {
	// ID tells it from all others, also from those of the same name elsewhere.
	ID string `bson:"id"`
	// Version is its layout's.
	Version int `bson:"version"`
	// At is the server's time.
	At time.Time `bson:"at"`
}

// LayoutVersion is the version of the layout that this package describes. A collection with another
// one is refused with a *LayoutError.
const LayoutVersion = 2
