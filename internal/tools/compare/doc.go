// Command compare measures locks of several systems in one run on one machine: redislock and redsync on Redis, etcd's concurrency
// package, PostgreSQL's advisory locks, the calls of mongo-lock, a mutex workflow as in Temporal's samples, and Lockstep.
//
//	go run -C internal/tools/compare . [-turns n] [-short] [-only name,name] [-markdown] [-svg file]
//
// It starts Redis, etcd and PostgreSQL itself, with data in a temporary folder, and ends them when it ends. It installs them from Debian
// if they are missing and the user is root. MongoDB and Temporal are those of LOCKSTEP_MONGODB_URI and TEMPORAL_ADDRESS. It needs Linux.
//
// # Systems
//
// Each system is used as its own documentation recommends; each file cites it. An instance has connections of its own, like a process.
// The clients of a measurement are spread over five instances.
//
// # Measures
//
// Systems take turns, and the result is the median of the turns.
//
//   - A pair: one client acquires and releases, without competition. It is compared with a raw durable write to the same
//     server; for Temporal, with the same workflow without a lock.
//   - A hand-off: the holder releases after 20 ms, and ten clients wait. The time ends when the next Acquire returns. Each holder is
//     replaced by a new waiter, so a request that jumps the queue does not count as a hand-off.
//   - Requests: what the clients send, counted by interceptors in the clients. One cycle is a new waiter, a hand-off and a release.
//   - Fairness: 20 clients acquire, hold for 2 ms, release and repeat at once.
//   - A crowd: 200 clients wait. The program counts what they send in three seconds; then the holder releases, and each client
//     releases as soon as it has had the lock.
//   - Faults: a child process holds the lock and is killed, or is stopped for longer than the TTL. When it continues, it first
//     writes, then waits to be told of the loss, then asks.
package main
