package store

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Store is a collection of documents. Implementations are safe for concurrent use.
//
// An error matches ErrNotSent if it is certain that nothing was sent. After every other error of Swap,
// Extend and Reserve the outcome is unknown, whatever the server returned: the command may have been
// applied, or may still be applied. A *rules.LayoutError is returned before anything is written; from
// Swap, Extend and Reserve it matches ErrNotSent too. All methods end when ctx ends.
type Store interface {
	// Every method that reads several documents answers for each: one that cannot be decoded hides no other.
	//
	// Load reads documents from the primary, with local read concern, for a swap: an acknowledged swap
	// commits the state on which it is based.
	Load(ctx context.Context, names ...string) (Loaded, error)
	// LoadMajority reads documents as a majority of the servers has them.
	LoadMajority(ctx context.Context, names ...string) (Loaded, error)
	// Versions returns the versions of the documents that exist, by name, as a majority of the servers
	// has them. It omits documents whose version cannot be decoded.
	Versions(ctx context.Context, names ...string) (map[string]rules.Version, error)
	// Swap replaces documents in order, each if its version is still Prev, and stops at the first
	// whose version is another. It returns the number of documents that it replaced. A smaller number
	// than len(swaps), without an error, is a conflict at that index: the documents from there on
	// were not written. After an error the outcome is unknown for all documents. At most MaxSwaps
	// documents can be replaced at once.
	//
	// A document is inserted only if Prev is zero and the collection is still that of In. Otherwise
	// it is a conflict at index 0.
	Swap(ctx context.Context, swaps ...Swap) (done int, err error)
	// Extend raises the ends of entries and gives their documents new versions with the random value r. It
	// changes only documents that contain all entries named in their extensions. If their extensions yield,
	// reserved documents are not changed either. rest contains the named documents that are not known to have been
	// changed, by name, and whether they contain the entries nevertheless, so that the extension can be
	// repeated. All other documents were changed, even if there is an error.
	Extend(ctx context.Context, parts []Extension) (rest map[string]bool, r string, err error)
	// Reserve sets the reservation of a document and gives it a new version, whatever its version is. If
	// another one is in force, nothing is changed: otherwise processes that are near the server would end
	// those of one that is far away. A missing document is not an error.
	Reserve(ctx context.Context, name string, reservation rules.Reservation) error
	// List streams documents in the order of their names, as a majority has them, with the server's
	// time in At. It may return more than was asked for. A document that cannot be decoded is yielded as
	// a *DamagedError, and the documents after it follow. Every other error is the last thing yielded.
	List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error]
	// SetPolicy sets or removes the policy of a name or a prefix, with one majority write, and records the change with the
	// server's time. An error that is none of a command has changed nothing.
	SetPolicy(ctx context.Context, change rules.PolicyChange) error
	// Identify returns the identity of the collection, read as by Load. On an empty collection it creates it.
	Identify(ctx context.Context) (rules.Identity, error)
	// Prepare creates the indexes. It may be called again.
	Prepare(ctx context.Context) error
}

// Loaded contains the documents of one read. Each document's At is also the field At.
type Loaded struct {
	// Docs contains the documents that exist, by name.
	Docs map[string]*rules.Document
	// Damaged contains, by name, the error about each document that exists and cannot be decoded.
	Damaged map[string]error
	// At is the server's time of the read. It is set even if no document exists.
	At time.Time
	// Identity is the collection's identity.
	Identity rules.Identity
}

// Swap is a replacement of one document.
type Swap struct {
	// Prev is the version that the document must have; the zero Version if there must be none.
	Prev rules.Version
	// Next is the new document. Its ID names it, and its Version is new.
	Next *rules.Document
	// In is the generation of the collection in which the document was missing. Defaults to the
	// generation that the store has seen last.
	In rules.Generation
}

// Extension raises the end of one entry.
type Extension struct {
	// Resource is the name of the document, and ID that of an entry in it.
	Resource, ID string
	// End is the new end, unless the entry's is later.
	End time.Time
	// At is the time of the renewal, as far as the caller knows the server's time.
	At time.Time
	// IdleAt is the document's new IdleAt, unless that is later.
	IdleAt time.Time
	// Yields lets a reservation that lasts at At prevent the extension. A document is extended in spite of
	// its reservation if one of its extensions does not yield.
	Yields bool
}

// MaxName and MaxLockID bound the names of resources and lock IDs, in bytes.
const (
	MaxName = 512
	// MaxLockID leaves room for a workflow ID of up to 1,000 bytes and a namespace ID.
	MaxLockID = 1500
)

// MaxSwaps is the number of documents that one call of Swap can replace.
const MaxSwaps = 100

// ErrNotSent is matched by errors that prove that a command was not sent.
var ErrNotSent = errors.New("lockstep: not sent")
