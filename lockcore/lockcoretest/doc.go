// Package lockcoretest is the specification of the lock engine, as plain functions: the document before, an
// operation and the time give the document after. They are written to be read, and tests hold the engine on
// MongoDB to them.
package lockcoretest
