// Package wire defines everything that travels between workflow code, activity workers and the history between them: names, header
// payloads, activity parameters, failures and lock IDs. It does no I/O.
//
// All of it outlives the process that wrote it. A history that one version recorded is replayed by another, a worker of one version
// runs steps that another version scheduled, and workflows in other languages write the same JSON by hand. Therefore:
//
//   - names never change, and fields are only appended;
//   - an absent field means the same as before the field existed;
//   - a reader refuses what it does not understand if ignoring it could run a step without its locks.
//
// The file testdata/wire.golden.json holds every format, and a test compares it.
//
//	workflow worker                        history                       activity worker
//	Guard ──────────── header lockstep-guard ──────────────▶ lockcore.StepRequest
//	RuleFacts ──────── header lockstep-rule ───────────────▶ lockcore.StepRequest
//	AcquireParams … ── input of lockstep.Acquire … ────────▶ lockcore calls
//	lockcore.LostError ◀── failure lockstep.Lost ─────────── lockcore.LostError
//
// names.go has the names, and the lock IDs of workflows; headers.go what a workflow writes into headers, and the request that an activity
// worker makes of it; params.go the inputs and results of the activities, and duration.go the durations in all of them. failure.go turns
// lockcore's errors into application failures, and errors.go turns application failures back into lockcore's errors, so that workflow code
// uses errors.As with the same types as plain Go code.
package wire
