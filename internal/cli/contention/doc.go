// Package contention reports from traces which owners kept others waiting for locks, and what to do about it.
//
// Three steps make a report, and a fourth writes it:
//
//	Read       read.go, documents.go, otlp.go, jaeger.go → spans.go   the lock spans in files
//	Analyze    analyze.go, holds.go, waits.go                         joins spans to holds and waits of resources and owners
//	           blame.go                                               finds the holds in the way of each wait
//	           roots.go                                               follows waits to the owners that waited for nothing
//	           summary.go, conclude.go                                sums up, and concludes
//	WriteTable, WriteJSON (output.go), package page                   for terminals, programs, browsers
//
// [Read] accepts OTLP in JSON or protobuf, as the OpenTelemetry Collector's file exporter writes it, compressed or not, and answers of
// Jaeger's query API. Nothing in a file is fatal: what cannot be read is counted. A report is made of at most [MaxSpans] lock spans.
//
// A hold is identified by resource, fence and lock ID, and counts once, whichever processes wrote its span. In the way of a wait were the
// holds that its own span names, and those of its resource that follow from times and fences: they overlap the wait, have another lock
// ID and an incompatible mode, and were granted before it. The rest of a wait is a hand-over from one owner to the next, or a span that
// was not read.
//
// Holds and waits are timed by the database server, steps by their processes. A step that seems to be outside its hold is moved into it.
// No duration is negative.
package contention
