package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Duration is a time.Duration whose JSON is a text such as "30s", "1m30s" or "forever". The text is readable in Temporal's UI, and
// safe in languages whose numbers end at 2^53, which lockcore.Forever exceeds.
type Duration time.Duration

const forever = "forever"

// String returns the text that the JSON has.
func (d Duration) String() string {
	if time.Duration(d) == lockcore.Forever {
		return forever
	}
	return time.Duration(d).String()
}

// MarshalText writes the duration as text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads "forever" and everything that time.ParseDuration reads. The error is a *lockcore.InvalidError.
func (d *Duration) UnmarshalText(text []byte) error {
	if string(text) == forever {
		*d = Duration(lockcore.Forever)
		return nil
	}
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return invalidDuration(fmt.Sprintf("%q", Cut(string(text), 64)))
	}
	*d = Duration(v)
	return nil
}

// UnmarshalJSON refuses a bare number, whose unit would not be clear.
func (d *Duration) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return invalidDuration(Cut(string(data), 64))
	}
	return d.UnmarshalText([]byte(text))
}

func invalidDuration(value string) error {
	return &lockcore.InvalidError{Field: "duration", Value: value, Bound: `a text such as "30s", "1m30s" or "forever"`}
}

// Meanings of the duration 0, for [CheckNotNegative].
const (
	workersDefault  = "the worker's default"
	asLongAsItTakes = "as long as it takes"
)

// CheckNotNegative returns a *lockcore.InvalidError that names the field if the duration is negative. zero describes the meaning of 0.
func CheckNotNegative(field string, d Duration, zero string) error {
	if d >= 0 {
		return nil
	}
	return &lockcore.InvalidError{Field: field, Value: d.String(), Bound: "0 (" + zero + "), or more"}
}

// leastHoldTTL is the shortest HoldTTL that a guard, a Lock or the configuration of a worker may set. verifyAfter is the age up to which a commit
// trusts a lock without asking the database. It is a third of leastHoldTTL: two minutes for the longest workflow task, and eight for differences
// between the clocks of Temporal's hosts remain. Histories depend on it.
var (
	leastHoldTTL = 15 * time.Minute
	verifyAfter  = 5 * time.Minute
)

// VerifyAfter returns the age from which on a commit asks the database whether a lock is still held.
func VerifyAfter() time.Duration { return verifyAfter }

// SetHoldTTL sets the shortest HoldTTL, and the age from which on a commit asks the database, before the first workflow of the process. It is
// for tests whose holds are short. Their histories replay only with the same values.
func SetHoldTTL(least, age time.Duration) { leastHoldTTL, verifyAfter = least, age }

// CheckHoldTTL returns a *lockcore.InvalidError that names the field if a commit could trust a hold of this TTL that has expired. 0 is the
// default of the worker.
func CheckHoldTTL(field string, d time.Duration) error {
	if d == 0 || d >= leastHoldTTL {
		return nil
	}
	return &lockcore.InvalidError{
		Field: field, Value: d.String(), Bound: fmt.Sprintf("0 (the default), or at least %v: a saga commits up to %v after the use of a lock without asking", leastHoldTTL, verifyAfter),
	}
}
