// Package inspect shows operators who holds locks and who waits, with what Temporal knows of the workflows behind them.
// It changes nothing, except that the doctor acquires and leaves one lock in a collection of locks.
//
// A [Site] is a collection of locks, with the Temporal namespace that its workflows run in. What it offers:
//
//   - [Site.Resources] lists the holders and the queue of each resource.
//   - [Site.Why] finds the root blockers of a workflow: the parties that keep it waiting and wait for nothing
//     themselves. Each comes with what its workflow does and with advice. [Site.Forest] shows all waits as trees.
//   - [Site.Orphans] and [Site.Deadlocks] list what should not last.
//   - [Site.Policies] lists the limits that operators have set.
//   - [Doctor] checks the database, Temporal and the workers.
package inspect
