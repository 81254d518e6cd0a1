// Package scenarios tells what the lock rules promise, as short stories that are played on one
// document: who acquires, waits, leaves and expires, and what each operation must answer.
//
// A scenario plays on a Harness. Rules applies operations to a document in memory, with a clock that
// the scenario moves. Lines sends them through the update loop to a store, in memory or on MongoDB,
// and moves the times in the stored document back instead. The tests of lockcore/rules play all
// scenarios on Rules, also with each rule broken on purpose; the tests of this package play them on
// Lines.
package scenarios
