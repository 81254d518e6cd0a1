package party

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Bounds of what a caller may pass.
const (
	maxName = 512
	// maxLockID leaves room for a workflow ID, of up to 1,000 bytes, and a namespace's.
	maxLockID    = 1500
	maxComment   = 1024
	maxResources = 100
	maxLimit     = 1_000_000
	limitBound   = "1 to 1,000,000; lockcore.Shared has no limit"
)

// check refuses what is never accepted, before the database is asked.
func (r *Request) check() error {
	errs := []error{
		checkText("Request.LockID", r.LockID, 1, maxLockID),
		checkText("Request.Part", r.Part, 0, maxName),
		checkText("Request.Call", r.Call, 0, 64),
		checkText("Request.Saga", r.Saga, 0, maxName),
		checkText("Request.Host", r.Host, 0, 255),
		checkText("Request.Comment", r.Comment, 0, maxComment),
		checkTTL("Request.TTL", r.TTL),
		checkTTL("Request.HoldTTL", r.HoldTTL),
		checkAtLeast("Request.HoldTTL", r.HoldTTL, r.TTL, "Request.TTL"),
		checkRange("Request.MaxWait", r.MaxWait, 0, maxTTL),
		checkSchedule("Request", r.Order),
	}
	errs = append(errs, r.checkRun()...)
	errs = append(errs, refuse(r.HoldOnly && (!r.Persist || r.Queued), "Request.HoldOnly", "true", "false without Request.Persist or with Request.Queued"))
	if r.Owner != r.LockID { // which it defaults to
		errs = append(errs, checkText("Request.Owner", r.Owner, 0, maxName))
	}
	names := make([]string, len(r.Resources))
	for i, res := range r.Resources {
		field := fmt.Sprintf("Request.Resources[%d]", i)
		twice := slices.Contains(names[:i], res.Name)
		errs = append(errs, CheckMode(field, res), refuse(twice, field+".Name", quote(res.Name), "each resource once in a request"))
		names[i] = res.Name
	}
	return firstError(append(errs, checkResources("Request.Resources", names, ".Name"),
		refuse(r.Order == (Order{}), "Request.Order", r.Order.String(),
			"0.1 or more for a request that queues, or that names its part: it is asked again by it"))...)
}

// checkSession refuses a request whose leases no Session can renew.
func (r *Request) checkSession() error {
	return refuse(r.HoldOnly, "Request.HoldOnly", "true", "false, except with Enter and Recheck: a Session renews parts")
}

// checkRun refuses what does not go together of a request with a run label.
func (r *Request) checkRun() []error {
	errs := []error{
		checkText("Request.Run", r.Run, 0, maxName),
		checkText("Request.TakeOver", r.TakeOver, 0, maxName),
		checkText("Request.Within", r.Within, 0, maxLockID),
		checkRange("len(Request.Undo)", len(r.Undo), 0, rules.MaxBars),
		refuse(r.TakeOver != "" && (r.Run == "" || r.TakeOver == r.Run), "Request.TakeOver", quote(r.TakeOver),
			"another label than Request.Run, which is set"),
		refuse(r.Within != "" && (r.Run == "" || r.Within == r.LockID), "Request.Within", quote(r.Within), "another lock ID than the request's, with Request.Run"),
	}
	for i, part := range r.Undo {
		field := fmt.Sprintf("Request.Undo[%d]", i)
		errs = append(errs, checkText(field, part, 0, maxName),
			refuse(r.Run == "" || part == r.Part, field, quote(part), "another part than Request.Part, with Request.Run"))
	}
	return errs
}

func (r *Raise) check() error {
	return firstError(
		checkText("Raise.LockID", r.LockID, 1, maxLockID),
		checkText("Raise.Run", r.Run, 1, maxName),
		checkText("Raise.TakeOver", r.TakeOver, 0, maxName),
		refuse(r.TakeOver == r.Run, "Raise.TakeOver", quote(r.TakeOver), "another label than Raise.Run"),
		checkText("Raise.Saga", r.Saga, 1, maxName),
		checkRange("Raise.Order.Schedule", int(r.Order.Schedule), 1, math.MaxInt32),
		refuse(len(r.Resources) == 0, "len(Raise.Resources)", "0", "1 or more"),
		checkNames("Raise.Resources", r.Resources, ""),
	)
}

func (r *Release) check() error {
	leaving, least := "", 0
	if r.Leaving != nil {
		leaving = *r.Leaving
	}
	if r.Force {
		least = 1
	}
	return firstError(
		checkEnd("Release", r.LockID, r.FirstFence, r.Resources),
		refuse(r.Leaving != nil && r.Order == (Order{}), "Release.Leaving", quote(leaving),
			"nil without Release.Order, which says which request of the part"),
		refuse(r.FirstFence == 0 && r.Order.Schedule == 0 && r.Order != LastAttempt(0), "Release.Order", r.Order.String(),
			"one with a Schedule of 1 or more, or LastAttempt; or Release.FirstFence, which names the hold of a plain request"),
		checkText("Release.Reason", r.Reason, least, maxName),
		refuse(r.Force && (r.FirstFence == 0 || r.Run != "" || r.Order != (Order{})), "Release.Force", "true",
			"false without Release.FirstFence, and with Release.Run or Release.Order"),
		refuse(r.Now && !r.Force, "Release.Now", "true", "false without Release.Force"),
		checkText("Release.Run", r.Run, 0, maxName),
		checkSchedule("Release", r.Order),
	)
}

// checkEnd refuses among others to look for one hold on several resources.
func checkEnd(field, lockID string, firstFence int64, resources []string) error {
	return firstError(
		checkText(field+".LockID", lockID, 1, maxLockID),
		checkResources(field+".Resources", resources, ""),
		refuse(firstFence < 0 || (firstFence > 0 && len(resources) != 1), field+".FirstFence", strconv.FormatInt(firstFence, 10),
			"that of a lease, with one resource; or 0"),
	)
}

func checkResources(field string, names []string, of string) error {
	return firstError(checkRange("len("+field+")", len(names), 1, maxResources), checkNames(field, names, of))
}

func checkNames(field string, names []string, of string) error {
	var errs []error
	for i, name := range names {
		errs = append(errs, checkText(fmt.Sprintf("%s[%d]%s", field, i, of), name, 1, maxName))
	}
	return firstError(errs...)
}

func checkSchedule(field string, o Order) error {
	return checkRange(field+".Order.Schedule", int(o.Schedule), 0, math.MaxInt32)
}

// CheckMode returns an *InvalidError that names the field if no request may have the mode and the limit of r.
func CheckMode(field string, r Resource) error {
	return firstError(
		refuse(r.Mode != ModeExclusive && r.Mode != ModeShared, field+".Mode", quote(string(r.Mode)), `"X" (exclusive) or "S" (shared)`),
		refuse(r.Mode == ModeExclusive && r.Limit != 0, field+".Limit", strconv.Itoa(r.Limit), "0 in exclusive mode"),
		refuse(r.Limit == noPlaces, field+".Limit", "0", limitBound),
		refuse(r.Limit < 0 || r.Limit > maxLimit, field+".Limit", strconv.Itoa(r.Limit), limitBound),
	)
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

func refuse(invalid bool, field, value, bound string) error {
	if !invalid {
		return nil
	}
	return &InvalidError{Field: field, Value: value, Bound: bound}
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
