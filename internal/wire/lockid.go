package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The lock ID of a workflow is
//
//	<namespace ID>/<workflow ID>
//
// whichever of its runs asks. A step that has a lock ID of its own has its workflow's, "/" and the step's name. In each
// place "/", "%", NUL and bytes that are no UTF-8 are escaped as in URLs, so that no two parties have the same. A workflow
// ID that would be too long is replaced by "%sha256:" and its hexadecimal hash, which no escaped text begins with.
const (
	hashPrefix = "%sha256:"
	// maxPlace is the length of a hash, and bounds the namespace ID, which is a UUID, and the step's name. maxWorkflowID makes
	// the whole fit into the 1,500 bytes that lockcore takes, and maxOwnerID makes an owner fit into MaxName.
	maxPlace      = len(hashPrefix) + 2*sha256.Size
	maxWorkflowID = 1500 - 2*(maxPlace+1)
	maxOwnerID    = MaxName - maxPlace - 1
)

// Run names one workflow run.
type Run struct {
	// Namespace is the namespace's ID and not its name, which two Temporal clusters may both have.
	Namespace  string
	WorkflowID string
	// RunID is the run label: it says which of the workflow's runs speaks for its lock ID.
	RunID string
}

// LockID returns the lock ID of the run's workflow. Different workflows have different ones.
func (r Run) LockID() string {
	return place(r.Namespace, maxPlace) + "/" + place(r.WorkflowID, maxWorkflowID)
}

// StepLockID returns the lock ID of a step that has one of its own beneath its workflow's.
func (r Run) StepLockID(step string) string { return r.LockID() + "/" + place(step, maxPlace) }

// Part returns the name of a part of the run's. Parts of different runs have different ones.
func (r Run) Part(step string) string { return Cut(r.RunID+"/"+step, MaxName) }

// Owner returns the workflow as an owner.
func (r Run) Owner() string {
	return place(r.Namespace, maxPlace) + "/" + place(r.WorkflowID, maxOwnerID)
}

// NamespacePrefix is what the lock IDs of all workflows of a namespace begin with, and no others.
func NamespacePrefix(namespaceID string) string { return place(namespaceID, maxPlace) + "/" }

// WaitID is the ID of the activity by which a step's schedule waits, as the worker that grants the lock makes it from the order
// of the request. It is made once in a run, since a run's numbers grow.
func WaitID(schedule uint32) string { return fmt.Sprintf("lockstep-wait-%d", schedule) }

// ParseLockID is the reverse of [Run.LockID], and of [Run.StepLockID]. The run has no RunID, which is the run label that stands
// beside the lock ID. Of a step with a long name it returns the hash: see [IsHash]. The error is a *lockcore.InvalidError. Lock
// IDs that are no workflow's get one, and so do those with a hash in another place, which cannot be read back.
func ParseLockID(lockID string) (of Run, step string, err error) {
	parts := strings.Split(lockID, "/")
	texts := make([]string, 3)
	valid := len(parts) == 2 || len(parts) == 3
	for i := 0; valid && i < len(parts); i++ {
		texts[i], valid = unescape(parts[i])
		if i == 2 && IsHash(parts[i]) {
			texts[i], valid = parts[i], true
		}
	}
	if !valid {
		bound := "<namespace ID>/<workflow ID>, or that and /<step>"
		return Run{}, "", &lockcore.InvalidError{Field: "lock ID", Value: Cut(lockID, 128), Bound: bound}
	}
	return Run{Namespace: texts[0], WorkflowID: texts[1]}, texts[2], nil
}

// IsNamespaceID reports whether a text has the form of a namespace's ID, which is a UUID. Plain Go
// names its locks as it likes: by their form alone, "billing/nightly" would be a workflow's too.
func IsNamespaceID(s string) bool {
	if len(s) != len("01234567-89ab-cdef-0123-456789abcdef") {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// IsHash reports whether a step's name, as [ParseLockID] returns it, is the hash of its name.
func IsHash(step string) bool { return strings.HasPrefix(step, hashPrefix) }

// place is a part of the lock ID between slashes.
func place(s string, most int) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == '/' || r == '%' || r == 0 || r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, "%%%02X", s[i])
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	if b.Len() <= most {
		return b.String()
	}
	sum := sha256.Sum256([]byte(s))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// unescape is the reverse of place; ok is false for a hash, and for what place never makes.
func unescape(s string) (text string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+3 > len(s) {
			return "", false
		}
		escaped, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.Write(escaped)
		i += 2
	}
	return b.String(), true
}
