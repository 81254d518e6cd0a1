// Package measure makes a database slower for benchmarks, and has their statistics. A replica set of three needs about 12 ms for a
// majority write, a database on one machine much less.
package measure

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
)

// Delays are added to the time that the database needs.
type Delays struct {
	// All applies to every command. Writes and Reads are added to it for the commands that IsWrite and IsRead name.
	All, Writes, Reads time.Duration
}

// Hold waits for the delay of a command, or until ctx ends. A command monitor calls it when the answer arrives: the driver
// returns the answer to its caller after the monitor has returned.
func (d Delays) Hold(ctx context.Context, command string) {
	wait := d.All
	switch {
	case IsWrite(command):
		wait += d.Writes
	case IsRead(command):
		wait += d.Reads
	}
	if wait > 0 {
		_ = Pause(ctx, wait) // the command has its answer
	}
}

// Monitor returns a command monitor that calls Hold for every answer.
func (d Delays) Monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) { d.Hold(ctx, e.CommandName) },
		Failed:    func(ctx context.Context, e *event.CommandFailedEvent) { d.Hold(ctx, e.CommandName) },
	}
}

// IsWrite reports whether a command writes.
func IsWrite(command string) bool {
	return slices.Contains([]string{"update", "insert", "findAndModify", "delete", "bulkWrite"}, command)
}

// IsRead reports whether a command reads documents.
func IsRead(command string) bool {
	return slices.Contains([]string{"find", "aggregate", "getMore", "count", "distinct"}, command)
}

// Pause waits, and returns ctx's cause if ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Millis returns a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Percentile returns a percentile of times in milliseconds, or 0 of none.
func Percentile(times []time.Duration, percent int) float64 {
	sorted := slices.Sorted(slices.Values(times))
	if len(sorted) == 0 {
		return 0
	}
	return Millis(sorted[min(len(sorted)*percent/100, len(sorted)-1)])
}

// Median returns the middle value, or the mean of the two in the middle, or 0 of none.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
