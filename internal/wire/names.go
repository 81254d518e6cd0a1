package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Headers. HeaderKey and RuleFactsKey are in the header of an activity, the others in that of the start of a workflow run.
const (
	// HeaderKey carries the [Guard] of a step.
	HeaderKey = "lockstep-guard"
	// RuleFactsKey carries the [RuleFacts] of an activity without a guard.
	RuleFactsKey = "lockstep-rule"
	// HandoverKey carries a [Handover] from a run that continued as new.
	HandoverKey = "lockstep-handover"
	// DueKey carries the releases that a run has decided which continued as new and handed its locks over.
	DueKey = "lockstep-due"
	// OwnerKey carries the [Owner] of the parent.
	OwnerKey = "lockstep-owner"
)

// PluginName is the name under which a worker with Lockstep's plugin appears in Temporal.
const PluginName = "temporal-lockstep.lockstep"

// Names of the activities, the same for every SDK.
const (
	ActivityPrefix  = "lockstep."
	ActivityAcquire = "lockstep.Acquire"
	ActivityRenew   = "lockstep.Renew"
	ActivityLeave   = "lockstep.Leave"
	ActivityRelease = "lockstep.Release"
	ActivityVerify  = "lockstep.Verify"
	ActivityWait    = "lockstep.Wait"
	ActivityBar     = "lockstep.Bar"
)

// IsNeverGuarded reports whether an activity, by its exact name, is one of Lockstep's own, or one with which the SDK begins and ends
// sessions.
func IsNeverGuarded(activityType string) bool {
	switch activityType {
	case ActivityAcquire, ActivityRenew, ActivityLeave, ActivityRelease, ActivityVerify, ActivityWait, ActivityBar,
		"internalSessionCreationActivity", "internalSessionCompletionActivity":
		return true
	default:
		return false
	}
}

// WaitID returns the ID of the activity that waits for a request with this schedule number. The worker that grants the lock derives
// the same ID from the order of the request. It is unique within a run, because schedule numbers grow.
func WaitID(schedule uint32) string { return fmt.Sprintf("lockstep-wait-%d", schedule) }

// FuncName returns the name under which the SDK registers a function or a method by default. f must be a func.
func FuncName(f reflect.Value) string {
	name := runtime.FuncForPC(f.Pointer()).Name()
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
}

// Types of application failures.
const (
	// FailureBusy: other parties hold the lock, or wait ahead. Benign. Retryable, except after MaxWait or with Try.
	FailureBusy = "lockstep.Busy"
	// FailureParked: with Park, the lock is busy, the queue is full, or the database cannot be reached. Benign and not retryable: the workflow runs
	// [ActivityWait] and then schedules the step again.
	FailureParked = "lockstep.Parked"
	// FailureLost: the lock was lost, and others may have held it. Not retryable.
	FailureLost = "lockstep.Lost"
	// FailureSuperseded: a release or a later request came first. Not retryable, unless it was a later attempt of the same scheduling.
	FailureSuperseded = "lockstep.Superseded"
	// FailureDeadlock: the request gave up to end a deadlock. Not retryable, because the saga must release what it holds first.
	FailureDeadlock = "lockstep.Deadlock"
	// FailureInvalid: the input is never accepted. Not retryable.
	FailureInvalid = "lockstep.Invalid"
	// FailureUnavailable: the database, or the worker's configuration, failed. Retryable.
	FailureUnavailable = "lockstep.Unavailable"
	// FailureOtherRun: another run of the workflow holds the lock, and this one is not the current run, according to Temporal. Retryable,
	// because its answer may have been out of date.
	FailureOtherRun = "lockstep.OtherRun"
	// FailureOtherCollection: the worker has another collection. Retryable, because another worker may take the next attempt.
	FailureOtherCollection = "lockstep.OtherCollection"
	// FailureResultPending means that a guarded activity returned activity.ErrResultPending. Not retryable.
	FailureResultPending = "lockstep.ResultPending"
	// FailureEnded is made by the workflow, for a step that was still waiting for its locks when its saga ended. Not retryable.
	FailureEnded = "lockstep.Ended"
	// FailureSagaFailed is made by the workflow, for a saga in which a compensation failed. Not retryable, because a person must repair
	// the state.
	FailureSagaFailed = "lockstep.SagaFailed"
)

// Scopes of a guard, as they appear in headers. A reader refuses any other.
const (
	ScopeStep = "step"
	ScopeSaga = "saga"
)

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

// The lock ID of a workflow is
//
//	<namespace ID>/<workflow ID>
//
// for all of its runs. A step with a lock ID of its own appends "/" and the step's name. In each segment "/", "%", NUL and bytes that
// are not valid UTF-8 are escaped as in URLs, so that no two parties have the same lock ID. A segment that would be too long is
// replaced by "%sha256:" and its hexadecimal hash; no escaped text begins so.
const (
	hashPrefix = "%sha256:"
	// maxLockID is the length that lockcore accepts for a lock ID.
	maxLockID = 1500
	// maxSegment bounds the namespace ID, which is a UUID. It is the length of a hash. maxStep bounds the step's name: a name with the
	// usual IDs and types of activities is not hashed. maxWorkflowID makes the lock ID fit into maxLockID, and maxOwnerID makes an owner
	// fit into MaxName. maxActivityID and maxActivityType do the same for the lock ID of an activity without a workflow.
	maxSegment    = len(hashPrefix) + 2*sha256.Size
	maxStep       = 400
	maxWorkflowID = maxLockID - maxSegment - maxStep - 2
	maxOwnerID    = MaxName - maxSegment - 1

	maxActivityType = 300
	maxActivityID   = maxLockID - len(standalonePrefix) - maxActivityType - 2*maxSegment - 3
)

// Run names one workflow run.
type Run struct {
	// Namespace is the namespace's ID and not its name, which two Temporal clusters may both have.
	Namespace  string
	WorkflowID string
	// RunID identifies the run among the runs that use the lock ID.
	RunID string
}

// LockID returns the lock ID of the run's workflow. Different workflows have different ones.
func (r Run) LockID() string {
	return escape(r.Namespace, maxSegment) + "/" + escape(r.WorkflowID, maxWorkflowID)
}

// StepLockID returns the lock ID of a step that has one of its own within its workflow's.
func (r Run) StepLockID(step string) string { return r.LockID() + "/" + escape(step, maxStep) }

// RuleStep returns the name of a step that is locked by a rule: an activity of one type and ID, and the time at which its workflow
// scheduled it. A workflow may use an activity ID again after the activity has ended.
func RuleStep(activityID, activityType string, scheduled time.Time) string {
	return RuleStepPrefix(activityID, activityType) + strconv.FormatInt(scheduled.UnixNano(), 10)
}

// RuleStepPrefix returns the beginning of the names that [RuleStep] gives to the activities of one type and ID, and to no others. It
// escapes both, so that no name need be parsed. The names of guarded steps begin with a number.
func RuleStepPrefix(activityID, activityType string) string {
	return "rule/" + escape(activityID, MaxName) + "/" + escape(activityType, MaxName) + "/"
}

// Part returns the name of the run's part for a step. Parts of different runs have different names.
func (r Run) Part(step string) string { return Cut(r.RunID+"/"+step, MaxName) }

// standalonePrefix begins the lock IDs of activities without a workflow. "%" and "st" begin neither an escaped byte nor a hash, so it
// begins no lock ID of a workflow.
const standalonePrefix = "%standalone/"

// Standalone names one run of an activity without a workflow. An activity ID may be used again: each run is a party of its own.
type Standalone struct{ Namespace, ActivityID, ActivityType, RunID string }

// LockID returns the lock ID of the run, which is also its owner:
//
//	%standalone/<namespace ID>/<activity ID>/<activity type>/<run ID>
//
// The segments are escaped like those of a workflow's lock ID.
func (s Standalone) LockID() string {
	return standalonePrefix + escape(s.Namespace, maxSegment) + "/" + escape(s.ActivityID, maxActivityID) + "/" +
		escape(s.ActivityType, maxActivityType) + "/" + escape(s.RunID, maxSegment)
}

// String describes the activity for people.
func (s Standalone) String() string { return "activity " + s.ActivityID + " of type " + s.ActivityType }

// ParseStandalone is the inverse of [Standalone.LockID]. ok is false for other lock IDs. A name that was too long is returned as its hash.
func ParseStandalone(lockID string) (of Standalone, ok bool) {
	rest, ok := strings.CutPrefix(lockID, standalonePrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 4 {
		return Standalone{}, false
	}
	for i, text := range []*string{&of.Namespace, &of.ActivityID, &of.ActivityType, &of.RunID} {
		if *text, ok = unescape(parts[i]); !ok && IsHash(parts[i]) {
			*text, ok = parts[i], true
		}
		if !ok {
			return Standalone{}, false
		}
	}
	return of, true
}

// Owner returns the workflow as an owner.
func (r Run) Owner() string {
	return escape(r.Namespace, maxSegment) + "/" + escape(r.WorkflowID, maxOwnerID)
}

// NamespacePrefix returns the prefix of the lock IDs of all workflows of a namespace, and of no others.
func NamespacePrefix(namespaceID string) string { return escape(namespaceID, maxSegment) + "/" }

// ParseLockID is the inverse of [Run.LockID] and [Run.StepLockID]. The returned run has no RunID, because the run is stored next
// to the lock ID. If the step's name was too long, step is its hash: see [IsHash]. The error is a *lockcore.InvalidError. It is
// returned for lock IDs that do not belong to a workflow, and for those with a hash in another segment, which cannot be read back.
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

// IsNamespaceID reports whether a text has the form of a namespace's ID, which is a UUID. Plain Go programs choose their lock IDs
// freely, so a lock ID such as "billing/nightly" must not be taken for a workflow's.
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

// escape returns one segment of a lock ID.
func escape(s string, most int) string {
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

// unescape is the inverse of escape. ok is false for a hash, and for a text that escape never returns.
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
