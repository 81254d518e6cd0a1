package lockcore

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
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

func (c Config) policy() rules.Policy {
	return rules.Policy{ClaimTTL: c.ClaimTTL.Milliseconds()}
}

// Bounds of arguments.
const (
	maxName      = store.MaxName
	maxLockID    = store.MaxLockID
	maxComment   = 1024
	maxResources = 100
	maxLimit     = 1_000_000
	limitBound   = "1 to 1,000,000; lockcore.Shared has no limit"
)

// checkEnd checks the arguments of an operation that ends or extends holds. A first fence names a hold on
// one resource.
func checkEnd(field, lockID string, firstFence int64, resources []string) error {
	return cmp.Or(
		checkText(field+".LockID", lockID, 1, maxLockID),
		checkResources(field+".Resources", resources, ""),
		refuse(firstFence < 0 || (firstFence > 0 && len(resources) != 1), field+".FirstFence", strconv.FormatInt(firstFence, 10),
			"that of a lease, with one resource; or 0"),
	)
}

func checkResources(field string, names []string, of string) error {
	return cmp.Or(checkRange("len("+field+")", len(names), 1, maxResources), checkNames(field, names, of))
}

func checkNames(field string, names []string, of string) error {
	var errs []error
	for i, name := range names {
		errs = append(errs, checkText(fmt.Sprintf("%s[%d]%s", field, i, of), name, 1, maxName))
	}
	return cmp.Or(errs...)
}

func checkText(field, value string, atLeast, atMost int) error {
	invalid := len(value) < atLeast || len(value) > atMost || !utf8.ValidString(value) || strings.ContainsRune(value, 0)
	return refuse(invalid, field, quote(value), fmt.Sprintf("%d to %d bytes of valid UTF-8 without NUL", atLeast, atMost))
}

func checkTTL(field string, d time.Duration) error {
	return refuse(d != Forever && (d < minTTL || d > maxTTL), field, d.String(), fmt.Sprintf("%v to ten years, or lockcore.Forever", minTTL))
}

func checkAtLeast(field string, d, least time.Duration, of string) error {
	return refuse(d < least, field, d.String(), fmt.Sprintf("at least %s, which is %v", of, least))
}

func checkRange[T int | time.Duration](field string, v, least, most T) error {
	return refuse(v < least || v > most, field, fmt.Sprint(v), fmt.Sprintf("%v to %v", least, most))
}

// refuse returns an *InvalidError if invalid.
func refuse(invalid bool, field, value, bound string) error {
	if !invalid {
		return nil
	}
	return &InvalidError{Field: field, Value: value, Bound: bound}
}

// quote quotes a value, and shortens a long one.
func quote(s string) string {
	const most = 64
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + fmt.Sprintf("… (%d bytes)", len(s))
}
