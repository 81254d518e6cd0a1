// Package tracefile writes OpenTelemetry spans to files in a folder, so that `lockstep contention` can read who kept whom waiting, without an
// OpenTelemetry Collector:
//
//	traces, err := tracefile.NewTracerProvider(ctx, "traces", tracefile.Options{})
//
// Give the provider to the Locker (lockcore.Config.TracerProvider) and, for the types of workflows and steps, to the tracing interceptor of
// Temporal's SDK. Shut it down when the process ends, after the Locker and the worker. A program that has a provider already adds the
// exporter that [New] returns.
//
// # Files
//
// Each process writes a file of its own, so any number of them may share a folder:
//
//	<name>-<host>-<process ID>-<time>.spans.jsonl
//
// A line is a batch of spans: an ExportTraceServiceRequest in OTLP's JSON encoding, as the file exporter of the Collector writes it. Each line is
// one write. A process that is killed in the middle leaves one broken line, the last of its file, which `lockstep contention` counts and skips. A
// crash of the machine loses what the operating system has not written yet.
//
// A new file begins when the current one would exceed [Options.MaxFileBytes], and after the current one was removed or renamed. Then the oldest
// files are removed, of whichever process, until the folder has room for the new one within [Options.MaxFolderBytes]. Only names that end in
// .spans.jsonl are removed. So N processes leave at most MaxFolderBytes and N times MaxFileBytes. A single batch may exceed both bounds.
//
// Files can be read by their owner and its group, because spans contain the names of resources and workflows.
//
// # Failures
//
// A folder that cannot be made or written is a [*FolderError] on construction. Later failures, such as a full disk, go to OpenTelemetry's error
// handler, and the spans of the batch are lost. They never fail or delay a lock, unless the exporter is used without a batching processor.
package tracefile
