package lockcore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what a caller may pass.
const (
	maxName = 512
	// maxLockID leaves room for a workflow ID, of up to 1,000 bytes, and what else names a party.
	maxLockID    = 1500
	maxComment   = 1024
	maxResources = 100
	maxLimit     = 1_000_000
)

// check refuses what is never accepted, before the database is asked.
func (r *Request) check() error {
	errs := []error{
		checkText("Request.LockID", r.LockID, 1, maxLockID),
		checkText("Request.Part", r.Part, 0, maxName),
		checkText("Request.Host", r.Host, 0, 255),
		checkText("Request.Comment", r.Comment, 0, maxComment),
		checkTTL("Request.TTL", r.TTL),
		checkTTL("Request.HoldTTL", r.HoldTTL),
		checkAtLeast("Request.HoldTTL", r.HoldTTL, r.TTL, "Request.TTL"),
		checkRange("Request.MaxWait", r.MaxWait, 0, maxTTL),
		checkSchedule("Request.Order.Schedule", r.Order),
		checkCount("len(Request.Resources)", len(r.Resources), 1, maxResources),
	}
	if r.Owner != r.LockID { // which it defaults to
		errs = append(errs, checkText("Request.Owner", r.Owner, 0, maxName))
	}
	seen := make(map[string]bool, len(r.Resources))
	for i, res := range r.Resources {
		field := fmt.Sprintf("Request.Resources[%d]", i)
		errs = append(errs, checkText(field+".Name", res.Name, 1, maxName), checkMode(field, res))
		if seen[res.Name] {
			errs = append(errs, &InvalidError{Field: field + ".Name", Value: quote(res.Name), Bound: "each resource once in a request"})
		}
		seen[res.Name] = true
	}
	return firstError(errs...)
}

// checkSchedule refuses what has no place in the number that is stored.
func checkSchedule(field string, o Order) error {
	return checkCount(field, int(o.Schedule), 0, math.MaxInt32)
}

func checkMode(field string, r Resource) error {
	switch r.Mode {
	case ModeExclusive:
		if r.Limit != 0 {
			return &InvalidError{Field: field + ".Limit", Value: strconv.Itoa(r.Limit), Bound: "0 in exclusive mode"}
		}
	case ModeShared:
		if r.Limit == noPlaces {
			return &InvalidError{Field: field + ".Limit", Value: "0", Bound: fmt.Sprintf("1 to %d; lockcore.Shared has no limit", maxLimit)}
		}
		return checkCount(field+".Limit", r.Limit, 0, maxLimit)
	default:
		return &InvalidError{Field: field + ".Mode", Value: quote(string(r.Mode)), Bound: `"X" (exclusive) or "S" (shared)`}
	}
	return nil
}

func checkText(field, value string, atLeast, atMost int) error {
	bound := fmt.Sprintf("%d to %d bytes of valid UTF-8 without NUL", atLeast, atMost)
	if len(value) < atLeast || len(value) > atMost || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return &InvalidError{Field: field, Value: quote(value), Bound: bound}
	}
	return nil
}

func checkTTL(field string, d time.Duration) error {
	if d == Forever || (d >= minTTL && d <= maxTTL) {
		return nil
	}
	return &InvalidError{Field: field, Value: d.String(), Bound: fmt.Sprintf("%v to ten years, or lockcore.Forever", minTTL)}
}

func checkAtLeast(field string, d, least time.Duration, of string) error {
	if d >= least {
		return nil
	}
	return &InvalidError{Field: field, Value: d.String(), Bound: fmt.Sprintf("at least %s, which is %v", of, least)}
}

func checkRange(field string, d, atLeast, atMost time.Duration) error {
	if d >= atLeast && d <= atMost {
		return nil
	}
	return &InvalidError{Field: field, Value: d.String(), Bound: fmt.Sprintf("%v to %v", atLeast, atMost)}
}

func checkCount(field string, n, atLeast, atMost int) error {
	if n >= atLeast && n <= atMost {
		return nil
	}
	return &InvalidError{Field: field, Value: strconv.Itoa(n), Bound: fmt.Sprintf("%d to %d", atLeast, atMost)}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// quote shows a value that may be very long or no text at all.
func quote(s string) string {
	const most = 64
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + fmt.Sprintf("… (%d bytes)", len(s))
}
