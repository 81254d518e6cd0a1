package party

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// Mode decides who else may hold a resource at the same time.
type Mode string

const (
	// ModeExclusive admits no other lock ID. It is the default.
	ModeExclusive Mode = "X"
	// ModeShared admits other shared holds; with a limit it is a semaphore.
	ModeShared Mode = "S"
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	if m == ModeShared {
		return "shared"
	}
	return "exclusive"
}

// Stronger returns the mode that covers the other.
func (m Mode) Stronger(other Mode) Mode { return Mode(rules.Stronger(string(m), string(other))) }

// Resource is a thing to lock, and the mode to lock it in. Make one with [Exclusive], [Shared] or
// [SharedLimit].
type Resource struct {
	// Name is the resource's name, such as "account/42": 1 to 512 bytes of valid UTF-8 without NUL.
	Name string `json:"name"`
	// Mode defaults to ModeExclusive.
	Mode Mode `json:"mode,omitempty"`
	// Limit, for ModeShared only, is the number of lock IDs that may hold the resource once this request
	// is granted, itself included: 1 to 1,000,000. Defaults to 0: no limit. It belongs to the request: others
	// may ask with another limit.
	Limit int `json:"limit,omitempty"`
	// HeldSince is the schedule number of a request of the same run since which the resource must be kept.
	// If it is not, the error is a *LostError, and nothing is taken. Defaults to 0: no condition.
	//
	// It is for requests with Run. What is kept must not have begun with a later schedule number. See also
	// Request.LostSince.
	HeldSince uint32 `json:"heldSince,omitempty"`
}

// Exclusive returns a request for name that excludes all other lock IDs.
func Exclusive(name string) Resource { return Resource{Name: name, Mode: ModeExclusive} }

// Shared returns a request for name that admits any number of other shared holders.
func Shared(name string) Resource { return Resource{Name: name, Mode: ModeShared} }

// SharedLimit returns a request for one of limit permits on name: a semaphore. A limit of 0 is refused;
// [Shared] has no limit.
func SharedLimit(name string, limit int) Resource {
	if limit == 0 {
		limit = zeroLimit
	}
	return Resource{Name: name, Mode: ModeShared, Limit: limit}
}

// zeroLimit marks a semaphore with a limit of 0, since Limit: 0 means no limit.
const zeroLimit = math.MinInt32

// Forever, as a TTL, makes a lock that never expires. If its process dies, the lock stays until it is
// released.
const Forever time.Duration = math.MaxInt64

// Order numbers the requests of one part: the schedule number of a step, and its attempt, which begins
// at 1 for each schedule. With the zero Order, the Locker draws a new part and numbers it.
type Order struct {
	Schedule uint32 `json:"schedule"`
	Attempt  uint32 `json:"attempt"`
}

// String returns "schedule.attempt".
func (o Order) String() string { return fmt.Sprintf("%d.%d", o.Schedule, o.Attempt) }

// number returns the order as it is stored: one nonnegative integer that compares like the pair.
func (o Order) number() int64 { return int64(o.Schedule&math.MaxInt32)<<32 | int64(o.Attempt) }

func orderOf(n int64) Order { return Order{Schedule: uint32(n >> 32), Attempt: uint32(n)} } //nolint:gosec // both halves fit by construction

// LastAttempt returns the greatest order of a schedule. A release up to it ends everything that this
// schedule and earlier ones took or may still request. Without a Run, a release up to LastAttempt(0)
// also ends plain requests. These all have the same order, so it refuses no later request, and a plain
// request that waits queues again.
func LastAttempt(schedule uint32) Order { return Order{Schedule: schedule, Attempt: math.MaxUint32} }

// Request asks for one or several resources in the name of one lock ID. For most requests LockID and
// Resources are enough.
type Request struct {
	// LockID names the hold: 1 to 1,500 bytes of valid UTF-8 without NUL. Requests of one lock ID
	// never block each other.
	LockID string `json:"lockId"`
	// Run is the label of the workflow run that makes the request, if the party is a workflow. At most
	// 512 bytes. If another run of the party holds or waits, or has replaced this run, the error is an
	// *[OtherRunError], and nothing is taken. A lock ID is used either always with a label or never.
	// Defaults to none.
	Run string `json:"run,omitempty"`
	// TakeOver, with Run, is the label of the run that Run replaces, from OtherRunError.Other. Kept holds
	// continue under a new fence. Running parts of the replaced run are cut off: they exclude every
	// party until they leave or expire. Its queued requests end. A replaced label is refused from then on.
	TakeOver string `json:"takeOver,omitempty"`
	// Within, with Run, is the lock ID of the workflow to which a step with a lock ID of its own belongs.
	// Kept holds of the workflow neither block the request nor count under its limit, and while the
	// workflow keeps the resource, the request skips the queue. With Persist, a hold lasts for HoldTTL
	// while the step waits for other resources; once the step has all of them, a hold ends with its part.
	Within string `json:"within,omitempty"`
	// Resources are taken in the order of their names, all or none. 1 to 100, no name twice.
	Resources []Resource `json:"resources"`
	// Part names the user of the hold that makes the request, such as a step of a saga. At most 512
	// bytes. A later request of the same part supersedes the earlier one. Defaults, without an Order, to
	// a random name: the request is independent of others of the same lock ID.
	Part string `json:"part,omitempty"`
	// Order is the number of this request among the requests of the same part. It is required with Part
	// and for Enter, since such a request can be repeated. Defaults to the first order of a new part.
	Order Order `json:"order"`
	// Call identifies the request if the caller may repeat it: a request with the same Call, Part and
	// Order gets what the first was granted, and one with another Call is superseded. At most 64 bytes.
	// Defaults to a random value.
	Call string `json:"call,omitempty"`
	// Queued states that the request has queued before. If it is neither queued nor granted now, because
	// something has ended it, the error is a *SupersededError, and it does not queue again. Defaults to
	// false: it queues.
	Queued bool `json:"queued,omitempty"`
	// Saga is the path of the step's saga, for [Locker.Raise], such as "2/5" for saga 5 inside saga 2. At most
	// 512 bytes. Defaults to none.
	Saga string `json:"saga,omitempty"`
	// TTL is the time without a renewal after which the part expires: 100 ms to ten years, or Forever.
	// Defaults to Config.TTL.
	TTL time.Duration `json:"ttl,omitempty"`
	// Persist keeps the hold after its last part has left, until it is released or HoldTTL has passed
	// without a renewal. Defaults to false: the hold ends with its last part.
	Persist bool `json:"persist,omitempty"`
	// HoldTTL, with Persist, is the time without a renewal after which a kept hold without parts expires:
	// TTL or more, or Forever. Defaults to Config.HoldTTL.
	HoldTTL time.Duration `json:"holdTtl,omitempty"`
	// HoldOnly, with Persist, asks for a hold without a part. The hold lasts for HoldTTL, and no process
	// renews it. If the request queues, the write that frees the resource grants it the hold, even if its
	// process is gone; repeated with a greater Order, it joins the hold. TTL has no effect, but must not
	// exceed HoldTTL. It excludes Queued, and only Enter, TryEnter and Recheck accept it. Defaults to false.
	HoldOnly bool `json:"holdOnly,omitempty"`
	// Reacquire takes a lost lock again, instead of returning ErrLost. Compensations set it: they must run,
	// and never without the lock.
	Reacquire bool `json:"reacquire,omitempty"`
	// LostSince, with Persist and without Reacquire, is for a run that a reset has made, whose history contains
	// requests of runs before. Resource.HeldSince then names the resources that the history has used. Of these
	// any loss from that time on counts, of any run, as in [Verify]; their orders are not compared, and one that
	// is missing without evidence is not lost. Defaults to zero: only losses of Run count.
	LostSince time.Time `json:"lostSince,omitzero"`
	// NewFence draws a new fence even if the lock ID holds already, so that a resource that checks
	// fences refuses late writes of earlier steps. Compensations after [Locker.Raise] need not set it.
	NewFence bool `json:"newFence,omitempty"`
	// Owner is the party that waits and holds, for people and for deadlock detection, which assumes that
	// requests of one owner wait for one another. So it names one thread of work, such as a saga. At most
	// 512 bytes, or LockID. Defaults to LockID.
	Owner string `json:"owner,omitempty"`
	// Started is the time at which the owner began. In a deadlock, the owner that started last gives up.
	// Defaults to the time at which the request queued.
	Started time.Time `json:"started,omitzero"`
	// NeverVictim keeps the request from being the one that gives up in a deadlock, unless all in it
	// have set it. Compensations set it.
	NeverVictim bool `json:"neverVictim,omitempty"`
	// Host is the owner's process or machine, for people. At most 255 bytes. Defaults to Config.Host.
	Host string `json:"host,omitempty"`
	// Comment is for people. At most 1,024 bytes.
	Comment string `json:"comment,omitempty"`
	// MaxWait is the longest wait: of Acquire, which defaults to no limit, and of an Enter for which a
	// grant is near, which defaults to no wait.
	MaxWait time.Duration `json:"maxWait,omitempty"`
}

// leaseOn returns the lease that the request may have got on a resource, to leave it.
func (r *Request) leaseOn(resource string) Lease {
	return Lease{Resource: resource, LockID: r.LockID, Run: r.Run, Part: r.Part, Order: r.Order, id: r.entryID(resource)}
}

// complete returns the request with its defaults and sorted resources, or an *InvalidError. With draws,
// a request without a part and an order becomes the first of a new part. The part's random name collides
// with no other, so no clock must order the requests of several processes.
func (l *Locker) complete(req Request, draws bool) (Request, error) {
	if draws && req.Part == "" && req.Order == (Order{}) {
		req.Part, req.Order = rand.Text()[:16], Order{Attempt: 1}
	}
	if req.HoldOnly && req.HoldTTL > 0 { // the default of TTL may be longer
		req.TTL = cmp.Or(req.TTL, req.HoldTTL)
	}
	req.TTL = cmp.Or(req.TTL, l.cfg.TTL)
	if req.HoldTTL != 0 && !req.Persist {
		return req, &InvalidError{Field: "Request.HoldTTL", Value: req.HoldTTL.String(), Bound: "0 without Request.Persist"}
	}
	if req.Persist {
		req.HoldTTL = cmp.Or(req.HoldTTL, max(l.cfg.HoldTTL, req.TTL))
	} else {
		req.HoldTTL = req.TTL
	}
	req.Owner = cmp.Or(req.Owner, req.LockID)
	req.Host = cmp.Or(req.Host, l.cfg.Host)
	req.Resources = slices.Clone(req.Resources)
	for i := range req.Resources {
		req.Resources[i].Mode = cmp.Or(req.Resources[i].Mode, ModeExclusive)
	}
	if err := req.check(); err != nil {
		return req, err
	}
	req.Call = cmp.Or(req.Call, rand.Text())
	slices.SortFunc(req.Resources, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return req, nil
}

// entryID returns the ID of the entry that the request makes on a resource. A renewal names entries of
// several resources by their IDs alone, so the ID depends on the part, the order and the resource too.
func (r *Request) entryID(resource string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %q", r.Call, r.Part, r.Order.number(), resource))
	return hex.EncodeToString(sum[:16])
}

// keepsWhileWaiting reports whether the request keeps its hold only while it waits for other resources.
func (r *Request) keepsWhileWaiting() bool { return r.Persist && r.Within != "" && !r.HoldOnly }

// keptTTL returns the time for which the kept hold lasts after a grant or a renewal. A hold that is kept
// only while the request waits for other resources lasts for the part's TTL.
func (r *Request) keptTTL() time.Duration {
	if r.keepsWhileWaiting() {
		return r.TTL
	}
	return r.HoldTTL
}

// check returns an *InvalidError if no database would ever accept the request.
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
		checkRange("Request.Order.Schedule", int(r.Order.Schedule), 0, math.MaxInt32),
	}
	errs = append(errs, r.checkRun()...)
	errs = append(errs, refuse(r.HoldOnly && (!r.Persist || r.Queued), "Request.HoldOnly", "true", "false without Request.Persist or with Request.Queued"))
	if r.Owner != r.LockID { // the default, which may be longer
		errs = append(errs, checkText("Request.Owner", r.Owner, 0, maxName))
	}
	names := make([]string, len(r.Resources))
	for i, res := range r.Resources {
		field := fmt.Sprintf("Request.Resources[%d]", i)
		twice := slices.Contains(names[:i], res.Name)
		errs = append(errs, CheckMode(field, res), refuse(twice, field+".Name", quote(res.Name), "each resource once in a request"))
		names[i] = res.Name
	}
	return cmp.Or(append(errs, checkResources("Request.Resources", names, ".Name"),
		refuse(r.Order == (Order{}), "Request.Order", r.Order.String(),
			"0.1 or more for a request that queues, or that names its part: it is asked again by it"))...)
}

// checkSession refuses a request whose leases no Session can renew.
func (r *Request) checkSession() error {
	return refuse(r.HoldOnly, "Request.HoldOnly", "true", "false, except with Enter and Recheck: a Session renews parts")
}

// checkRun checks the fields that depend on the run label.
func (r *Request) checkRun() []error {
	return []error{
		checkText("Request.Run", r.Run, 0, maxName),
		checkText("Request.TakeOver", r.TakeOver, 0, maxName),
		checkText("Request.Within", r.Within, 0, maxLockID),
		refuse(r.TakeOver != "" && (r.Run == "" || r.TakeOver == r.Run), "Request.TakeOver", quote(r.TakeOver),
			"another label than Request.Run, which is set"),
		refuse(r.Within != "" && (r.Run == "" || r.Within == r.LockID), "Request.Within", quote(r.Within), "another lock ID than the request's, with Request.Run"),
	}
}

// CheckMode returns an *InvalidError that names the field if no request may have the mode and the limit of r.
func CheckMode(field string, r Resource) error {
	return cmp.Or(
		refuse(r.Mode != ModeExclusive && r.Mode != ModeShared, field+".Mode", quote(string(r.Mode)), `"X" (exclusive) or "S" (shared)`),
		refuse(r.Mode == ModeExclusive && r.Limit != 0, field+".Limit", strconv.Itoa(r.Limit), "0 in exclusive mode"),
		refuse(r.Limit == zeroLimit, field+".Limit", "0", limitBound),
		refuse(r.Limit < 0 || r.Limit > maxLimit, field+".Limit", strconv.Itoa(r.Limit), limitBound),
	)
}
