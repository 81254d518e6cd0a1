// Package wire holds everything that travels between workflow code, activity workers and the
// history that joins them: names, header payloads, activity parameters, failures, lock IDs. It does
// no I/O.
//
// All of it outlives the process that wrote it. A history that was recorded by one version is replayed
// by another, a worker of one version runs steps scheduled by another, and workflows in other languages
// write the same JSON by hand. So names never change, fields are only ever appended, an absent field
// means what it meant before the field existed, and what a reader does not understand it refuses
// where ignoring it could run a step unguarded.
//
//	workflow worker                        history                       activity worker
//	Guard ──────────── header lockstep-guard ──────────────▶ party.Request
//	AcquireParams … ── input of lockstep.Acquire … ────────▶ lockcore calls
//	lockcore.LostError ◀── failure lockstep.Lost ─────────── lockcore.LostError
//
// Two files translate errors: failure.go makes application errors of lockcore's errors, typed.go makes
// lockcore's errors of application errors, so that workflow code uses errors.As with the types that
// plain Go code uses.
package wire
