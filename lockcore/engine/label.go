package engine

import (
	"slices"
	"strings"
	"time"
)

// A party may be a workflow, for which one run after the other speaks: retries, resets and restarts. The run label of an
// operation says which. All entries and places of such a party carry the label of the run that speaks for it:
// [Acquire] has the rules. Outside of Temporal there are no labels, and nothing here applies. A lock ID that is used with
// labels must never be used without.

// OtherRun: another run speaks for the party, or replaced the one that asks. Nothing changed. Last.Note is its label.
const OtherRun Outcome = "other run"

// CutOff is the lock ID under which a running part drains that was cut off by another run of its own party, or by an undo. Such
// an entry is exclusive, whatever the part's mode was: it keeps its own party out too, until it leaves or its time is over.
func CutOff(lockID string) string { return lockID + cutOff }

// IsCutOff reports whether the lock ID stands for cut-off parts, so that no party may use it.
func IsCutOff(lockID string) bool { return strings.HasSuffix(lockID, cutOff) }

const cutOff = " (cut off)"

// Undone says that a part is over: a compensation undoes what it did, and a request of it that comes later is refused.
type Undone struct {
	LockID string    `bson:"lockId"`
	Part   string    `bson:"part"`
	At     time.Time `bson:"at"`
}

// ReasonUndone is why a request of an undone part is refused.
const ReasonUndone = "a compensation undoes it"

// UndoneFor is how long a part is known to be undone, and MaxUndone how many parts at most, the oldest of which go first.
const (
	UndoneFor = 10 * time.Minute
	MaxUndone = 64
)

// Undoes reports whether the part was undone.
func (d *Document) Undoes(lockID, part string) bool {
	for _, u := range d.Undone {
		if u.LockID == lockID && u.Part == part {
			return true
		}
	}
	return false
}

// CommitFor is how long a commit is known, and MaxCommits how many at most, the oldest of which go first.
const (
	CommitFor  = 10 * time.Minute
	MaxCommits = 64
)

// HasCommitted reports whether a run is known to have released all that its party had up to exactly this order.
func (d *Document) HasCommitted(lockID, label string, order int64) bool {
	for _, c := range d.Commits {
		if c.LockID == lockID && c.Label == label && c.Order == order {
			return true
		}
	}
	return false
}

// Replaced are a run of a party and those that it is known to have replaced, one after the other.
func (d *Document) Replaced(lockID, label string) []string {
	labels := []string{label}
	for i := len(d.Evicted) - 1; i >= 0; i-- { // the latest change of run comes last
		if e := &d.Evicted[i]; e.LockID == lockID && e.To != "" && slices.Contains(labels, e.To) && !slices.Contains(labels, e.Label) {
			labels = append(labels, e.Label)
		}
	}
	return labels
}

// OtherRun is the label of the run that keeps a request from speaking for its party, if one does: a run that has replaced
// the request's, or one that the request may not replace and of which an entry or a place stands.
func (d *Document) OtherRun(a *Acquire) (label string, yes bool) {
	if a.Label == "" {
		return "", false
	}
	for _, e := range d.Evicted {
		if e.LockID == a.LockID && e.Label == a.Label && e.To != "" {
			return e.To, true
		}
	}
	other := func(lockID, label string) bool {
		return lockID == a.LockID && label != a.Label && (label == "" || label != a.TakeOver)
	}
	for i := range d.Held {
		if e := &d.Held[i]; other(e.LockID, e.Label) && (e.Holds() || e.Stands(d.At)) {
			return e.Label, true
		}
	}
	for i := range d.Waiters {
		if w := &d.Waiters[i]; other(w.LockID, w.Label) && w.ExpiresAt.After(d.At) {
			return w.Label, true
		}
	}
	return "", false
}
