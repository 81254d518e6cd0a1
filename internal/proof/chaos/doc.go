// Command chaos runs client processes and Temporal workers under load, disturbs them and their servers, and checks afterwards
// that Lockstep has kept its guarantees.
//
//	make chaos SEED=7 RUNS=3
//	make chaos-controls
//	make soak LONG=30m
//
// # From the seed to the violations
//
//	plan.go       the faults of a seed: a pure function
//	controls.go   runs in which something is wrong on purpose, and edits.go what some of them change in the database
//	client.go     a client process, and naive.go what is wrong in some controls
//	worker.go     a worker process, with sagas that move money
//	register.go   resources that check fences, in the program itself, which no fault concerns
//	wall.go       the clock of the client processes
//	servers.go    the database and Temporal, which can be killed and started again
//	policies.go   an operator who changes the limits of the semaphores
//	processes.go  the child processes, and nemesis.go the faults, with what was seen of each
//	play.go       one run, from the servers to the locks that remain
//	log.go        the log that all processes write, by the machine's monotonic clock
//	check*.go     pure functions over the log, which return violations
//	soak*.go      a long run that samples what the processes use
//
// The timing of a run is the machine's, so a seed that failed may pass the next time.
//
// # Load
//
// Six clients take exclusive locks, shared locks and semaphores. They try or queue, hold for a few milliseconds or for longer than
// the TTL, and write to registers. Two workers run sagas with guarded steps on the same registers. A part of the sagas is undone.
// Each process also asks again and again for a resource of its own, which shows when it can work. Clients also run short histories
// of try, renew and leave without a session.
//
// An operator changes the limits of the semaphores: by name, by prefix and for all, above and below those of the requests, some with an
// end, and removes them again. Every second change lasts for at least fourteen seconds, so that all processes follow it. A change that the
// database did not answer was made if the audit of policies shows it.
//
// # Faults
//
//	kill               SIGKILL. A new process takes the slot
//	stop               SIGSTOP for longer than the TTL
//	database restart   SIGKILL of the database's processes, which are started again on the same ports
//	Temporal restart   the same for Temporal
//	cut                connections are closed, and new ones refused for a time
//	slow               data is delayed in both directions
//	half-open          present connections swallow requests, answers or both. They are reset at the end, or stay silent
//	clock              the wall clock of a client becomes wrong by minutes
//
// Connections are disturbed between each process and the database, and between each worker and Temporal. Each seed has at least
// three kinds of faults, and eight seeds in a row have all. A fault counts only if it was seen to act: a process in state T, a
// number of closed connections, a server that refuses connections and has another process ID, a clock that has jumped.
//
// # Clocks
//
// Go programs read the clock without libc. So the client is built with another time.Now, whose wall clock can be set, while its
// monotonic clock runs on. The lock library has no clock to inject here, because it uses wall time in two places only. Trust in a
// lease ends by the monotonic or the wall clock, whichever has moved more. The estimate of the server's time uses the clock that has
// moved less. Leases end by the server's clock. Workers keep their clocks, because Temporal's SDK compares the server's times with
// its own.
//
// # Checks
//
//	trust            no party trusts an exclusive lock while another party trusts it
//	limits           no more parties trust a semaphore than the greatest limit of the last ten seconds before the latest grant
//	waiters          no request for a semaphore waits in vain that is heard of and no fault concerns, if there is room under each limit
//	                 of the last ten seconds, whenever the queue is read
//	losses           the database reports no lease lost that its holder has trusted just before
//	audit            the audit of policies shows each change that succeeded, and no other
//	fences           a later grant has a greater fence
//	order            an exclusive request that waits, that is heard of, and that no fault concerns, is not overtaken by a later one
//	lost updates     no write to a register overwrites one that its writer has not read
//	isolation        between two uses of a register by one party, no other party uses it
//	sagas            all sagas end as planned, unless they lost a lock or were undone for a deadlock too often, each with all of its
//	                 steps in effect or none, undone in reverse order, and the sum of all registers is what it was
//	crashes          no process ends by itself
//	left locks       one TTL after all processes were stopped, half of them by SIGKILL, no lock is left, and each can be acquired at once
//	linearizability  a single lock could have given the answers of each history
//	recovery         after a fault, each process whose connections to the database it concerned succeeds again within 2 s or one TTL,
//	                 without a restart, and until the next fault it never stops for longer
//
// A holder logs every 20 ms that its lease is valid. What it logs is the time before it looked, so a process that was stopped in
// between trusted its lease at that time at least. Two overlapping holds therefore prove a violation, whatever the load of the
// machine. Only recovery, waiters and the end of sagas depend on how fast the machine is.
//
// Some faults leave commands without an answer, and only its time limit of ten seconds ends such a command: a connection that stays
// silent, and a restart of the database. In a restart FerretDB opens up to sixty connections to PostgreSQL at once. The commands that
// wait for them took up to 7 s, while later ones took 0.1 s. After such a fault a process has ten seconds more. With the default TTL of
// 30 s that is less than one TTL. The TTL of a run is three seconds.
//
// # Controls
//
// A check that finds nothing may be blind. So each kind of fault has a control, a run with only that kind of fault in which
// something is wrong on purpose: see [controls]. It fails unless a fault acted and the expected check finds a violation in one of
// three attempts. Checks that none of these needs have a control without faults. A seed of two minutes also fails if fewer than three
// kinds of faults acted, or if too little was done to check.
//
// # Soak
//
// A soak plays one plan for long, with a fault every 8 to 20 seconds. Only the last client and the last worker are killed. Each
// process samples its resident memory, its live heap, its goroutines and its file descriptors once a second. The program divides the
// time into thirty windows and takes the median of each. A line through the medians of the second half may rise by a tenth of
// their level, or by what soak.go allows for small levels. The slope of the line is the median of all slopes between two windows, so
// an outage does not bend it. All checks of a seed are made too. soak_report.go draws a chart.
//
// # What it does not show
//
//   - Nothing about replica sets: the local database is one server. The simulation covers failovers.
//   - How soon a worker polls Temporal again is not measured. Its sagas must end.
//   - A decision about a semaphore is allowed to be based on limits that are ten seconds older, if a fault concerned a process with a
//     permit: a command that was on its way may be applied late. The operator's own connections are not disturbed, except by restarts.
//   - Order is checked only for requests that were seen in the queue and that no fault concerned. That a free lock is granted at all
//     is checked by probes and at the end of sagas.
//   - A history in which too many parties overlap for the model is not decided. The output counts them.
//   - Connections between the parts of a server, such as FerretDB and PostgreSQL, are not disturbed.
//   - Power failures: a killed process loses nothing that the operating system has taken.
package main
