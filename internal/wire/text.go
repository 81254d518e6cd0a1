package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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

// MaxName is the length in bytes that lockcore accepts for a resource, part or owner.
const MaxName = 512

// Cut returns the longest prefix of s that has at most n bytes and does not end inside a character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// namespaceIDs matches the namespace IDs at the beginning of lock IDs.
var namespaceIDs = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/`)

// text returns the message of a failure. People know workflows by their IDs, so it leaves out the ID of the party's own namespace.
// The details have the full lock IDs.
func text(err error, lockID string) string {
	s := err.Error()
	var lost *lockcore.LostError
	if errors.As(err, &lost) && lost.By != "" && lost.Reason == "" {
		s += ": its lease expired before it was renewed"
	}
	if own := namespaceIDs.FindString(lockID); own != "" && strings.HasPrefix(lockID, own) {
		s = strings.ReplaceAll(s, own, "")
	}
	return Cut(s, maxMessage)
}

// RewriteField replaces the field names of the request in a *lockcore.InvalidError by the names that the user wrote: it puts prefix in
// the place of "Request.". prefix ends with a dot, or is empty. Any other error is returned as it is.
func RewriteField(err error, prefix string) error {
	const request = "Request."
	var invalid *lockcore.InvalidError
	if !errors.As(err, &invalid) || !strings.Contains(invalid.Field, request) {
		return err
	}
	return &lockcore.InvalidError{
		Field: strings.ReplaceAll(invalid.Field, request, prefix), Value: invalid.Value, Bound: strings.ReplaceAll(invalid.Bound, request, prefix),
	}
}

// NoteAncestor sets the Note of a *lockcore.BusyError if an ancestor of the run's workflow holds the lock. An ancestor that waits for
// its child never releases the lock, and the deadlock search cannot find that deadlock.
func NoteAncestor(err error, run Run, ancestors []string) {
	var busy *lockcore.BusyError
	if len(ancestors) == 0 || !errors.As(err, &busy) {
		return
	}
	for _, h := range busy.Holders {
		of, _, err := ParseLockID(h.LockID)
		if err == nil && of.Namespace == run.Namespace && slices.Contains(ancestors, of.WorkflowID) {
			busy.Note = fmt.Sprintf("it is held by the workflow %q, an ancestor of this one: if that waits for its child, neither can continue; "+
				"release the lock before, or leave it out of the child", of.WorkflowID)
			return
		}
	}
}
