package lockcore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// Bounds of what a caller may pass.
const (
	maxName = 512
	// maxLockID leaves room for a workflow ID, of up to 1,000 bytes, and a namespace's.
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
		checkRange("Request.Order.Schedule", int(r.Order.Schedule), 0, math.MaxInt32),
		checkRange("len(Request.Resources)", len(r.Resources), 1, maxResources),
	}
	errs = append(errs, r.checkRun()...)
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
	if r.Order == (Order{}) {
		errs = append(errs, &InvalidError{
			Field: "Request.Order", Value: r.Order.String(), Bound: "0.1 or more for a request that queues, or that names its part: it is asked again by it",
		})
	}
	return firstError(errs...)
}

// checkRun refuses what does not go together of a request with a run label.
func (r *Request) checkRun() []error {
	errs := []error{
		checkText("Request.Run", r.Run, 0, maxName), checkText("Request.TakeOver", r.TakeOver, 0, maxName),
		checkText("Request.Within", r.Within, 0, maxLockID), checkRange("len(Request.Undo)", len(r.Undo), 0, engine.MaxUndone),
	}
	refuse := func(is bool, field, value, bound string) {
		if is {
			errs = append(errs, &InvalidError{Field: field, Value: quote(value), Bound: bound})
		}
	}
	refuse(engine.IsCutOff(r.LockID), "Request.LockID", r.LockID, "one that does not end like those of parts that were cut off")
	refuse(r.TakeOver != "" && (r.Run == "" || r.TakeOver == r.Run), "Request.TakeOver", r.TakeOver, "another label than Request.Run, which is set")
	refuse(r.Within != "" && (r.Run == "" || r.Keep || r.Within == r.LockID), "Request.Within", r.Within,
		"another lock ID than the request's, with Request.Run and without Request.Keep")
	for i, part := range r.Undo {
		field := fmt.Sprintf("Request.Undo[%d]", i)
		errs = append(errs, checkText(field, part, 0, maxName))
		refuse(r.Run == "" || part == r.Part, field, part, "another part than Request.Part, with Request.Run")
	}
	return errs
}

func (r *Release) check() error {
	var order error
	switch {
	case r.Leaving != nil && r.Order == (Order{}):
		order = &InvalidError{Field: "Release.Leaving", Value: quote(*r.Leaving), Bound: "nil without Release.Order, which says which request of the part"}
	case r.FirstFence == 0 && r.Order.Schedule == 0 && r.Order != (Order{}) && r.Order != LastAttempt(0):
		order = &InvalidError{
			Field: "Release.Order", Value: r.Order.String(), Bound: "one with a Schedule of 1 or more, or LastAttempt; a plain request is named by FirstFence",
		}
	}
	return firstError(
		checkEnd("Release", r.LockID, r.FirstFence, r.Resources),
		order,
		checkText("Release.Orphaned", r.Orphaned, 0, maxName),
		checkText("Release.Run", r.Run, 0, maxName),
		checkRange("Release.Order.Schedule", int(r.Order.Schedule), 0, math.MaxInt32),
	)
}

// checkEnd refuses among others to look for one hold on several resources.
func checkEnd(field, lockID string, firstFence int64, resources []string) error {
	checks := []error{
		checkText(field+".LockID", lockID, 1, maxLockID),
		checkRange("len("+field+".Resources)", len(resources), 1, maxResources),
	}
	for i, name := range resources {
		checks = append(checks, checkText(fmt.Sprintf("%s.Resources[%d]", field, i), name, 1, maxName))
	}
	if firstFence < 0 || (firstFence > 0 && len(resources) != 1) {
		checks = append(checks, &InvalidError{
			Field: field + ".FirstFence", Value: strconv.FormatInt(firstFence, 10), Bound: "that of a lease, with one resource; or 0",
		})
	}
	return firstError(checks...)
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
		return checkRange(field+".Limit", r.Limit, 0, maxLimit)
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

func checkRange[T int | time.Duration](field string, v, least, most T) error {
	if v >= least && v <= most {
		return nil
	}
	return &InvalidError{Field: field, Value: fmt.Sprint(v), Bound: fmt.Sprintf("%v to %v", least, most)}
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
