package lockcore

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config configures a [Locker]. Its zero value is the default.
//
// Give locks a MongoDB client of their own. If slow queries of the application use all connections of a
// shared client, renewals wait for one, and locks are lost while the database is healthy.
type Config struct {
	// TTL is the time without a renewal after which a lease expires, and others may evict it: 100 ms to
	// ten years, or Forever. Defaults to 30 s.
	TTL time.Duration
	// HoldTTL is the time without a renewal after which a hold that a [StepRequest] keeps expires: TTL to ten
	// years, or Forever. Defaults to 1 h, or TTL if that is more.
	HoldTTL time.Duration
	// ClaimTTL is the time in which the process of a waiter must confirm a grant, as it does at once when it
	// learns of it. If it does not, the next waiter is granted the resource. The one that missed its grant keeps
	// its position, and has twice as long the next time, up to four times ClaimTTL. 100 ms to 15 min. Defaults
	// to 30 s.
	ClaimTTL time.Duration
	// WaiterTTL is the time after which a waiter whose process has died leaves the queue: 1 s to 1 h. A waiter
	// refreshes its request every third of it. Defaults to 5 min.
	WaiterTTL time.Duration
	// MaxWaiters bounds the queue of one resource: 1 to 5,000. Very long names can make a document reach
	// its limit of 12 MB earlier. Defaults to 2,000.
	MaxWaiters int
	// Host is stored with each hold, for people. At most 255 bytes. Defaults to the host name and
	// process ID.
	Host string
	// TracerProvider makes the spans. Defaults to the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. Defaults to the global one.
	MeterProvider metric.MeterProvider
	// ResourceClass maps a resource's name to one of a few classes, such as "account" for
	// "account/42". Metrics record the class as the attribute lock.resource.class, unless it is "". It
	// must be safe for concurrent use. Defaults to nil: no class.
	ResourceClass func(resource string) string
}

const (
	minTTL = 100 * time.Millisecond
	maxTTL = 10 * 365 * 24 * time.Hour
	// maxQueueTTL bounds claims and waiters of Acquire. The time of a document's removal does not
	// consider them, so they must end within rules.Retention.
	maxQueueTTL = time.Hour
)

func (c Config) withDefaults() (Config, error) {
	c.TTL = cmp.Or(c.TTL, 30*time.Second)
	c.HoldTTL = cmp.Or(c.HoldTTL, max(time.Hour, c.TTL))
	c.ClaimTTL = cmp.Or(c.ClaimTTL, 30*time.Second)
	c.WaiterTTL = cmp.Or(c.WaiterTTL, 5*time.Minute)
	c.MaxWaiters = cmp.Or(c.MaxWaiters, 2000)
	if c.Host == "" {
		name, _ := os.Hostname() // the name is for people; without one the process ID remains
		c.Host = fmt.Sprintf("%s:%d", name, os.Getpid())
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	return c, cmp.Or(
		checkTTL("Config.TTL", c.TTL),
		checkTTL("Config.HoldTTL", c.HoldTTL),
		checkAtLeast("Config.HoldTTL", c.HoldTTL, c.TTL, "Config.TTL"),
		checkRange("Config.ClaimTTL", c.ClaimTTL, minTTL, maxQueueTTL/4),
		checkRange("Config.WaiterTTL", c.WaiterTTL, time.Second, maxQueueTTL),
		checkRange("Config.MaxWaiters", c.MaxWaiters, 1, 5000),
		checkText("Config.Host", c.Host, 1, 255),
	)
}
