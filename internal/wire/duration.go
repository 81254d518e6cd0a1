package wire

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Duration is a time.Duration that travels as text, such as "30s", "1m30s" or "forever": readable in
// Temporal's UI, and safe in languages whose numbers end at 2^53, which lockcore.Forever exceeds.
type Duration time.Duration

const forever = "forever"

// String returns what stands in JSON.
func (d Duration) String() string {
	if time.Duration(d) == lockcore.Forever {
		return forever
	}
	return time.Duration(d).String()
}

// MarshalText writes the duration as text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads "forever" or what time.ParseDuration reads; anything else is a
// *lockcore.InvalidError.
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

// UnmarshalJSON refuses a bare number, which would leave its unit open.
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

// Meanings of the duration 0, for [CheckNotNegative].
const (
	workersDefault  = "the worker's default"
	asLongAsItTakes = "as long as it takes"
)

// CheckNotNegative returns a *lockcore.InvalidError that names the field if the duration is negative. zero describes the
// meaning of 0.
func CheckNotNegative(field string, d Duration, zero string) error {
	if d >= 0 {
		return nil
	}
	return &lockcore.InvalidError{Field: field, Value: d.String(), Bound: "0 (" + zero + "), or more"}
}

func invalidDuration(value string) error {
	return &lockcore.InvalidError{Field: "duration", Value: value, Bound: `a text such as "30s", "1m30s" or "forever"`}
}
