package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The lock ID of a workflow run is
//
//	temporal:<cluster>/<namespace>/<workflowID>/<runID>
//
// Cluster, namespace and run ID never contain a "/": where one does, it is escaped. The workflow ID may contain
// anything, so it is whatever stands between the second slash and the last. Where it cannot stand as
// it is, because the whole would be longer than lockcore takes, because it contains NUL or is not
// UTF-8, or because it looks like its own replacement, "sha256:" and its hexadecimal hash stand for it.
const (
	lockIDPrefix = "temporal:"
	hashPrefix   = "sha256:"
	// maxPlace bounds cluster, namespace and run ID, so that all three and a hashed workflow ID always
	// fit: 9 + 3*128 + 71 + 3 < 512.
	maxPlace = 128
)

// Run names one workflow run.
type Run struct {
	Cluster    string
	Namespace  string
	WorkflowID string
	RunID      string
	// Hashed says that WorkflowID is not the ID but what stands for it in the lock ID. Set by [ParseLockID].
	Hashed bool
}

var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F", "\x00", "%00")
	unescaper = strings.NewReplacer("%25", "%", "%2F", "/", "%00", "\x00")
)

// LockID returns the run's lock ID. Different runs have different ones.
func (r Run) LockID() string {
	id := r.WorkflowID
	whole := func() string {
		return lockIDPrefix + place(r.Cluster) + "/" + place(r.Namespace) + "/" + id + "/" + place(r.RunID)
	}
	if !r.Hashed && strings.HasPrefix(id, hashPrefix) || strings.ContainsRune(id, 0) || !utf8.ValidString(id) || len(whole()) > MaxName {
		id = hashed(id)
	}
	return whole()
}

// WaitID is the ID of the activity by which a step's schedule waits, as whoever grants the lock makes it from the order
// of the request. It is made once in a run, since a run's numbers grow.
func WaitID(schedule uint32) string { return fmt.Sprintf("lockstep-wait-%d", schedule) }

// ParseLockID is the reverse of [Run.LockID]. The error is a *lockcore.InvalidError; lock IDs that do
// not belong to Temporal get one too.
func ParseLockID(lockID string) (Run, error) {
	rest, ok := strings.CutPrefix(lockID, lockIDPrefix)
	cluster, rest, ok1 := strings.Cut(rest, "/")
	namespace, rest, ok2 := strings.Cut(rest, "/")
	last := strings.LastIndexByte(rest, '/')
	if !ok || !ok1 || !ok2 || last < 0 {
		return Run{}, &lockcore.InvalidError{
			Field: "lock ID", Value: Cut(lockID, 128), Bound: lockIDPrefix + "<cluster>/<namespace>/<workflow ID>/<run ID>",
		}
	}
	id := rest[:last]
	return Run{
		Cluster: unescaper.Replace(cluster), Namespace: unescaper.Replace(namespace), WorkflowID: id,
		RunID: unescaper.Replace(rest[last+1:]), Hashed: isHashed(id),
	}, nil
}

// place is a part of the lock ID between slashes. What is not UTF-8, or too long, is hashed: Temporal
// has no such names.
func place(s string) string {
	e := escaper.Replace(s)
	if len(e) > maxPlace || !utf8.ValidString(e) || strings.HasPrefix(e, hashPrefix) {
		return hashed(s)
	}
	return e
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hashPrefix + hex.EncodeToString(sum[:])
}

func isHashed(s string) bool {
	sum, ok := strings.CutPrefix(s, hashPrefix)
	return ok && len(sum) == 2*sha256.Size && strings.Trim(sum, "0123456789abcdef") == ""
}
