package engine

import (
	"slices"
	"strings"
)

// OtherRun: another run speaks for the party, or replaced the one that asks. Nothing changed, and
// Last.Note is its label. This is the answer if another run's hold stands, or anything of it is
// alive, unless Acquire.TakeOver permits to replace it. Then kept holds go on under the new label
// and a new fence, parts are cut off, and places and claims go. A lock ID that is used with labels
// must never be used without.
const OtherRun Outcome = "other run"

// CutOff is the lock ID under which a running part drains that was cut off by another run of its
// own party, or by an undo. Such an entry is exclusive, and keeps its own party out too.
func CutOff(lockID string) string { return lockID + cutOff }

// IsCutOff reports whether the lock ID stands for cut-off parts, so that no party may use it.
func IsCutOff(lockID string) bool { return strings.HasSuffix(lockID, cutOff) }

const cutOff = " (cut off)"

// Undone says that a compensation undoes a part: a request of it that comes later is refused.
type Undone struct {
	LockID string `bson:"lockId"`
	Part   string `bson:"part"`
}

// ReasonUndone is why a request of an undone part is refused.
const ReasonUndone = "a compensation undoes it"

// MaxUndone is how many parts are known to be undone, and MaxCommits how many commits are known.
const (
	MaxUndone  = 64
	MaxCommits = 64
)

// Undoes reports whether the part was undone.
func (d *Document) Undoes(lockID, part string) bool {
	return slices.ContainsFunc(d.Undone, func(u Undone) bool { return u.LockID == lockID && u.Part == part })
}

// HasCommitted reports whether a run is known to have released all up to exactly this order.
func (d *Document) HasCommitted(lockID, label string, order int64) bool {
	return slices.ContainsFunc(d.Commits, func(c Commit) bool { return c.LockID == lockID && c.Label == label && c.Order == order })
}

// Replaced are a run of a party, and those that it is known to have replaced or that replaced it, one
// after the other.
func (d *Document) Replaced(lockID, label string) []string {
	labels := []string{label}
	for n := 0; n < len(labels); n++ {
		for i := range d.Evicted {
			e := &d.Evicted[i]
			if e.LockID != lockID || e.To == "" || (e.To != labels[n] && e.Label != labels[n]) {
				continue
			}
			for _, other := range []string{e.Label, e.To} {
				if !slices.Contains(labels, other) {
					labels = append(labels, other)
				}
			}
		}
	}
	return labels
}
