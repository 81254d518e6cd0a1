// Package verify checks the locks on a user's own database, in a collection that it makes and removes.
//
// # The model
//
// The command is the only observer: it starts client processes, gives them orders over pipes, and notes when
// it sent each order and when the answer came. So all times of a history are those of one clock.
//
//	command ──orders, JSON lines──▶ client process ──cutter──▶ database
//	   │     ◀──────answers───────   (a Locker)
//	   └── reads documents and the server's time through a store of its own
//
// A check compares what clients were answered with what the lock guarantees. An observation counts as a
// violation only if no delay of the machine or the network explains it: the command reads the server's time
// before it asks, or after it was answered, whichever favours the lock.
//
// # Controls
//
// A control breaks the store of the client processes (control.go): each must be found by a check.
//
// # Not guaranteed
//
// All clients run on one machine, and no server loses power. What held is true for the histories that were
// played, and for no others.
package verify
