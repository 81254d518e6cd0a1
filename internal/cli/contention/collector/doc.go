// Package collector has only a test. It runs an OpenTelemetry Collector with docs/monitoring/collector.yaml, and makes a contention report
// from the files that it writes.
//
// It is a module of its own, so that the users of Lockstep do not depend on the Collector. `.ci/run collector` runs it.
package collector
