// Package contention says from traces who kept whom waiting for locks, and what to do about it.
//
// Its parts are four, each of which uses only those before it:
//
//	read     input, documents, formats, otlp, packed, jaeger, spans → collect, records, types
//	analyse  holds, steps, deaths, waits                            what was held and waited for
//	         blockers, named, row, crowd, blame                     which holds were in the way of a wait
//	         follow, roots; types, load, owners, resources, why     what that adds up to
//	         deadlocks, losses; conclude, conclude_long             and what follows from it
//	table    table, table_trees, json                               for terminals and programs
//	page     the package page                                       for browsers
//
// [Read] takes the spans from files: OTLP's JSON or protobuf, as the OpenTelemetry Collector's file
// exporter writes them, compressed or not, and what Jaeger's query API answers. A file's content
// says what it is. Nothing in a file is fatal: what cannot be read is counted and told.
//
// [Analyze] joins them. A hold is named by (resource, fence, lock ID), and counts once, whichever
// processes wrote its span. A wait was kept waiting by the holds that its own span names, and by
// those of its resource that follow from times and fences: they overlap it, are another lock ID's,
// are incompatible with it, and were granted before it was. The rest of a wait is a hand-over from
// one to the next, or a span that was not read.
//
// The root of a wait is who held while it waited for nothing: while the owner of a hold waited
// itself, its waits are followed further. A step with a lock ID of its own waits only under that
// one: other waits of its workflow do not keep its hold. Every sentence of the conclusion is a rule with a
// threshold, and stands only if the data support it; docs/contention.md lists them.
//
// Waits and holds are in the time of the database server, steps in that of their processes. A step
// that seems to stand outside its hold is moved into it; no duration is ever negative.
package contention
