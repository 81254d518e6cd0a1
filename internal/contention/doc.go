// Package contention tells from traces who kept whom waiting for locks.
//
// [Read] takes the spans from files: OTLP's JSON or protobuf, as the OpenTelemetry Collector's file exporter writes them, compressed or not, and what
// Jaeger's query API answers. What a file holds is found by looking at it. Nothing in a file is fatal: what cannot be read is counted and told of.
//
//	files → documents → spans → records → holds, steps, waits → blockers → chains, tables
//	 input   documents, otlp,     spans     holds, steps, waits  blockers,   chains, resources, owners, …
//	         packed     jaeger                                   row, crowd
//
// [Analyze] joins them. A hold is named by (resource, fence, lock ID), and counts once, whoever wrote its span. A wait was kept waiting by the holds
// that its own span names, and by those of its resource that follow from times and fences: they overlap it, are another lock ID's,
// are incompatible with it, and were granted before it was. Every instant of a wait that such a hold covers is explained; the rest is a
// hand-over from one to the next, or a span that was not read.
//
// Waits and holds are in the time of the database server, steps in that of their processes. A step that seems to stand outside its hold is
// moved into it; no duration is ever negative.
package contention
