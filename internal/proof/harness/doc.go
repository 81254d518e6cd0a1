// Package harness is for programs that run several live processes and disturb them: the saga fuzzer, chaos, compare, and the commands
// verify and demo.
//
//	process.go  a child process: kill, suspend, quit, and lines to and from it
//	pool.go     child processes in slots, of which each can be started again
//	log.go      a log that all processes of a run append to
//	network.go  connections that are cut, delayed, silent or refused, in this process
//	proxy.go    the same for other processes, as a TCP proxy
//
// A child is ended by its handle, never by its name, and ends with its parent: on Linux by a signal, on other systems because its
// standard input ends. The package is a part of the released command, so it imports no test library.
package harness
