// Package scenarios specifies the lock rules by short examples on one document: which requests acquire,
// wait, leave and expire, and the expected answer to each operation.
//
// # How to read a scenario
//
// The scenarios are the transcripts in testdata, one file for each topic. An operation is a line, and its
// answer is the indented line below:
//
//	acquire a p exclusive
//	  granted, fence 1
//	acquire b p shared order=2 queue
//	  queued, position 1 of 1
//	pass 10m
//	settle
//	  done, evicts a p
//	show
//	  claims: b p order=2 shared, 20m left
//
// An operation names a lock ID, such as a; its part, such as p, or "-" if the part has no name; and options:
//
//	acquire   requests the resource. "queue" lets it wait, and "refresh" only refreshes its position in the queue.
//	          "keep" keeps the hold after its last part, and "hold-only" requests such a hold without a part.
//	renew     extends a part and what its lock ID keeps. "downgrade" makes the part shared.
//	leave     ends a part, and its claim or waiter. "queue-only" ends only the latter two.
//	take-back undoes an acquire, and nothing else.
//	release   ends all up to an order, or the hold that began with a fence. "force" states the reason of an operator.
//	          Parts drain until they leave or expire, except the part that "stopped" names, and all of them with "now".
//	withdraw  ends the wait of a victim of a deadlock.
//	verify    asks whether a saga still holds what it has used up to an order.
//	raise     bars the requests of a saga up to an order, before its compensations run.
//	promote   puts the waiters of a lock ID first.
//	settle    ends what has expired, and serves the queue, as every write does.
//
// Options such as run=one, saga=s and within=w describe the request of a workflow. [rules.Acquire] and the other
// operations explain each.
//
// What is not named has a default: order 1, a TTL of 10 minutes for a part, of 20 for a claim, of 40 for a
// waiter and of 60 for a kept hold, a queue of 100 waiters, and an owner that is the lock ID. A grant without a
// time lasts for the TTL that was requested. "pass 10m" lets time pass, and "pass -5m" sets the clock back.
//
// "limit x* 3 for=10m" sets a policy, here for all resources whose names begin with x, and "limit x none" removes one. The
// names are those of "new resource"; "limit "" 3" is for the resource with which the scenario began. The limit 0 is a policy
// that cannot be decoded. "pool "" m,n!" makes that resource a pool of the members m and n, of which n is out of service, and
// "acquire a p pool" requests a member.
//
// Fences are numbered from 1 in the order in which they were drawn; the first and the least fence of a hold are
// named if they differ. Times are rounded, to minutes and below that to 15 seconds.
//
// An answer consists of the outcome, its details, what the operation ended, evicted or granted, and the length
// of the queue. It ends with "no change" if the write changed nothing but times, by less than half a minute, and
// with "nothing written" if there was no write. An entry is named by its lock ID and its part; what a lock ID
// keeps is named by the lock ID and "kept".
//
// "show" prints the holders, draining parts, claims and the queue. It can also name sections (evidence,
// releases, bars, forced, missed, attention, idle, complete) and fields of entries (id, owner, created, after …).
// "evidence" and "was-lost" ask what a process would learn about a loss. "new resource" continues on a resource
// that has no document. "for i in 0..64: …" repeats operations, and counts their answers by outcome.
//
// # How to change a scenario
//
// Write the operations, and let the rules fill in the answers:
//
//	go test ./internal/proof/scenarios -run TestTranscripts_AreAsRewritten -rewrite
//
// Then read the difference: it is the change of the rules.
//
// # Where scenarios run
//
// A scenario runs on a Harness. [Rules] applies operations to a document in memory, with a clock that
// the scenario moves. The tests of internal/engine/rules run all scenarios on it, and once more for each rule
// that they break on purpose. [Lines] applies them through the update loop to a store; there, time passes
// because the times in the stored document are moved back. The tests of this package run all scenarios on
// a store in memory and on MongoDB, and lockstep verify runs them on a user's database. So the transcripts are
// built into the command, and no library that imports package testing can read them.
package scenarios
