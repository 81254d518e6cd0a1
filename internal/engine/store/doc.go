// Package store keeps one document per resource in a MongoDB collection and compares versions. It
// contains no lock rules: package rules decides what a document becomes, and a swap stores the result
// if the document has not changed since it was read.
//
//	      Load                     rules                       Swap
//	collection ──▶ document, time ──────▶ next document ──▶ {_id, version} matches?
//	                                                          yes: replaced
//	                                                          no:  conflict, load again
//
// # Documents and versions
//
// The _id of a document is the name of its resource. Its version is a counter and a random value, so
// no version ever repeats. A swap is a replacement whose filter is {_id, version}. If the version has
// changed, nothing is written.
//
// The collection also contains one document with the _id 0, its identity, which records the version of
// the layout. Every read includes it, so that the server's time ($$NOW) is known even if no other
// document exists. A collection that has documents but no identity belongs to another program or to
// an older version of this one, and is refused.
//
// # Commands
//
// A command that may insert a document is an ordered update that begins with a guard: a statement that fails unless the
// collection has the ID and the epoch of the read in which the document was missing. So no document appears in a
// collection without its identity, and no delayed command brings back what was removed.
//
// The store sends reads, inserts, replacements and plain update operators ($set, $inc, $max with
// array filters). No update is an aggregation pipeline, and no filter contains $expr, because servers
// that speak MongoDB's protocol differ in these. Package storetest checks it.
//
// Every write is acknowledged by a majority and journalled. Load reads locally from the primary:
// a swap that is acknowledged by a majority commits the state on which it is based. LoadMajority,
// Versions and List read what a majority has.
//
// No command takes part in a session or a transaction of the caller. Every command has a time limit
// of its own, in addition to the caller's. The comment of each function lists the outcomes of its
// command.
//
// # Errors
//
// An error either matches ErrNotSent or has an unknown outcome. See notSent for the errors of the
// driver that prove that a command was not sent.
//
// # String comparison
//
// Names and lock IDs compare byte by byte. That is what a collection without a collation does, so a
// collection with another default collation is refused. Commands do not ask for the simple collation
// themselves: DocumentDB refuses commands that do, and on MongoDB it would not help, because the
// index on _id has the collation of the collection and would take "A" and "a" for duplicates.
//
// # Guarantees
//
//   - Of several swaps that are based on the same version, at most one is applied, and at most once.
//   - An extension gives its documents new versions, so no swap overwrites it unnoticed.
//   - A document is inserted only into the generation of the collection in which it was missing.
//   - Nothing that a caller passes is interpreted by the server.
//   - A collection that is refused is not changed.
//
// # Not guaranteed
//
// A conflict does not prove that the swap was not applied: the driver may have sent it twice. The
// server's time is that of the node that executes a command. On a sharded cluster that is each shard's own
// clock, even within one answer. Therefore a read of named documents has one time, that of the identity
// document, and so of the shard which has it: [Loaded].At, and the At of each document. A list does not
// read the identity. The At of a listed document is its own shard's clock. It is for display, and for
// choosing what to look at; what changes a document loads it first.
package store
