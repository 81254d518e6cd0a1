// Package scenarios specifies the lock rules by short examples on one document: which requests acquire,
// wait, leave and expire, and the expected answer to each operation.
//
// A scenario runs on a Harness. [Rules] applies operations to a document in memory, with a clock that
// the scenario moves. The tests of internal/engine/rules run all scenarios on it, and once more for each rule
// that they break on purpose. [Lines] applies them through the update loop to a store; there, time passes
// because the times in the stored document are moved back. The tests of this package run all scenarios on
// a store in memory and on MongoDB, and lockstep verify runs them on a user's database.
package scenarios
