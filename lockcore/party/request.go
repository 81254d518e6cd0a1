package party

import (
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

// Mode says who else may hold a resource at the same time.
type Mode string

const (
	// ModeExclusive admits no other lock ID. It is the zero value's meaning too.
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

// Resource is one thing to lock, and how. Make one with [Exclusive], [Shared] or [SharedLimit].
type Resource struct {
	// Name is what is locked, such as "account/42": 1 to 512 bytes of valid UTF-8 without NUL.
	Name string `json:"name"`
	// Mode defaults to ModeExclusive.
	Mode Mode `json:"mode,omitempty"`
	// Limit, for ModeShared only, is how many lock IDs may hold the resource when this request is
	// granted, itself included. The limit belongs to the request: others may ask with another one.
	// Defaults to 0, which is no limit.
	Limit int `json:"limit,omitempty"`
	// Held says that the lock ID is known to hold the resource already. If it does not, the answer is
	// ErrLost, and nothing is taken.
	Held bool `json:"held,omitempty"`
}

// Exclusive asks for name alone.
func Exclusive(name string) Resource { return Resource{Name: name, Mode: ModeExclusive} }

// Shared asks for name together with any number of other shared holders.
func Shared(name string) Resource { return Resource{Name: name, Mode: ModeShared} }

// SharedLimit asks for one of limit places on name: a semaphore. A limit of 0 is refused: [Shared]
// is the one without limit.
func SharedLimit(name string, limit int) Resource {
	if limit == 0 {
		limit = noPlaces
	}
	return Resource{Name: name, Mode: ModeShared, Limit: limit}
}

// noPlaces is the limit of a semaphore of no places, which is not the same as no limit.
const noPlaces = math.MinInt32

// Forever, as a TTL, makes a promise that never ends by itself: the lock stands until it is
// released. A process that dies with one leaves it standing.
const Forever time.Duration = math.MaxInt64

// Order numbers the requests of one part: the scheduling of a step, and its attempt, which starts
// again at 1 with every scheduling. The zero Order is none: then the Locker draws a part for the
// request, and numbers within it.
type Order struct {
	Schedule uint32 `json:"schedule"`
	Attempt  uint32 `json:"attempt"`
}

// String returns "schedule.attempt".
func (o Order) String() string { return fmt.Sprintf("%d.%d", o.Schedule, o.Attempt) }

// number is the order as it is stored: one integer that compares like the pair, and is not
// negative.
func (o Order) number() int64 { return int64(o.Schedule&math.MaxInt32)<<32 | int64(o.Attempt) }

func orderOf(n int64) Order { return Order{Schedule: uint32(n >> 32), Attempt: uint32(n)} } //nolint:gosec // both halves fit by construction

// LastAttempt is the order that no attempt of the same scheduling exceeds. A release up to it ends
// everything that the scheduling, and all before it, took or may still ask for. A release without a
// Run up to LastAttempt(0) also ends plain requests, all of which have the same order: so it refuses
// no later request, and a plain request that waits queues again.
func LastAttempt(schedule uint32) Order { return Order{Schedule: schedule, Attempt: math.MaxUint32} }

// Request asks for a hold on one or several resources in the name of one lock ID. The zero value of
// every field but LockID and Resources is the usual choice.
type Request struct {
	// LockID names the hold: 1 to 1,500 bytes of valid UTF-8 without NUL. Requests of one lock ID
	// never block each other.
	LockID string `json:"lockId"`
	// Run is the run label, if the party is a workflow: which of its runs speaks for it. At most 512
	// bytes. If another run's hold, part or place stands, or a run replaced this one, the answer is an
	// [OtherRunError], and nothing is taken. A lock ID is used either always with a run label or
	// never. Defaults to none.
	Run string `json:"run,omitempty"`
	// TakeOver, with Run, is the label that Run may replace, as the OtherRunError named it. What that
	// run keeps goes on under a new fence. Its running parts are cut off, and keep every party out
	// until they leave or their time is over. Its places in queues go. The label never returns.
	TakeOver string `json:"takeOver,omitempty"`
	// Undo, with Run, names the parts that the request, a compensation, undoes: at most 64, not its
	// own. They are over: a later request of theirs is refused, until 64 others were undone there.
	// And this one waits for those that run or drain, although its party holds. Writes by
	// [UpdateFenced] under its lease bar theirs, if the request asks for NewFence.
	Undo []string `json:"undo,omitempty"`
	// Within, with Run, is the lock ID of a workflow, if this one is of a step within it. What the
	// workflow keeps neither blocks the request nor counts under its limit, and while it is kept
	// the request goes ahead of the queue. With Persist, the hold stands for HoldTTL while the step
	// waits for other resources. When the step has all of them, a hold ends with its part.
	Within string `json:"within,omitempty"`
	// Resources are taken in the order of their names, all or none. 1 to 100, no name twice.
	Resources []Resource `json:"resources"`
	// Part names the user of the hold that asks: a step of a saga. At most 512 bytes. A later request
	// of the same part supersedes the earlier one. Defaults, without an Order, to a new name: the
	// request is a user of its own, beside others of the same lock ID.
	Part string `json:"part,omitempty"`
	// Order is this request's place among the requests of the same part. A request that names its
	// Part, or that Enter queues, has to bring one: it is asked again by it. Defaults to the first of
	// a new part.
	Order Order `json:"order"`
	// Call identifies the request, if its caller may send it again: a request with the same Call, Part
	// and Order gets what the first was granted, and another one is superseded. At most 64 bytes.
	// Defaults to a random value: no request is the same as another.
	Call string `json:"call,omitempty"`
	// Queued is set in a request that has queued before. If it is neither queued nor granted any longer,
	// because another has ended it, the answer is a *SupersededError, and it does not queue again.
	// Defaults to false: it queues.
	Queued bool `json:"queued,omitempty"`
	// Saga names the saga of the step, if the party is a workflow: see Raise. At most 512
	// bytes. Defaults to none.
	Saga string `json:"saga,omitempty"`
	// TTL is how long the part may be silent: 100 ms or more, or Forever. Defaults to Config.TTL.
	TTL time.Duration `json:"ttl,omitempty"`
	// Persist lets the hold stand when its last part has left, until it is released or HoldTTL has
	// passed without a sign of life. Without it, the hold ends with its last part.
	Persist bool `json:"persist,omitempty"`
	// HoldTTL, with Persist, is how long the hold may stand with no part and no sign of life: 100
	// ms or more, or Forever. Defaults to Config.HoldTTL.
	HoldTTL time.Duration `json:"holdTtl,omitempty"`
	// HoldOnly, with Persist, asks for the hold and no part of it. The hold lasts for HoldTTL, and no
	// process renews it. A request that waits in the queue is granted the hold by the write that frees
	// the resource, even if its process is gone; made again, in a greater Order, it joins the hold. TTL
	// has no meaning then, except that it is not more than HoldTTL. It does not go with Queued, and only Enter and Recheck accept it. Defaults to
	// false: the request gets a part.
	HoldOnly bool `json:"holdOnly,omitempty"`
	// Reacquire takes a lock that was lost again, instead of answering ErrLost. Compensations set it:
	// they must run, and not beside others.
	Reacquire bool `json:"reacquire,omitempty"`
	// NewFence gives a new fence even if the lock ID holds already, so that a resource that checks
	// fences refuses whatever an earlier step may still send. Compensations set it.
	NewFence bool `json:"newFence,omitempty"`
	// Owner is the party that waits and holds, for people and for deadlock detection: requests of one
	// owner are taken to wait for one another, so it names one thread of work, such as a saga. At most
	// 512 bytes, or LockID. Defaults to LockID.
	Owner string `json:"owner,omitempty"`
	// Started is when the owner began. Of those in a deadlock the one that started last gives up.
	// Defaults to when the request queued.
	Started time.Time `json:"started,omitzero"`
	// NeverVictim keeps the request from being the one that gives up in a deadlock, unless all in it
	// say so. Compensations set it.
	NeverVictim bool `json:"neverVictim,omitempty"`
	// Host is where the owner is, for people. At most 255 bytes. Defaults to Config.Host.
	Host string `json:"host,omitempty"`
	// Comment is for people. At most 1,024 bytes.
	Comment string `json:"comment,omitempty"`
	// MaxWait is how long to wait at most: for Acquire, which defaults to as long as its context
	// lives; and for an Enter that queues and whose turn is near, as Enter says, which defaults to not
	// at all.
	MaxWait time.Duration `json:"maxWait,omitempty"`
}

// leaseOn returns the lease that a request may have got on a resource, to leave it.
func (r *Request) leaseOn(resource string) Lease {
	return Lease{Resource: resource, LockID: r.LockID, Run: r.Run, Part: r.Part, Order: r.Order, id: r.entryID(resource), keeps: r.Persist}
}

// complete fills what is unset, sorts the resources, and refuses what is never accepted. If draws,
// a request that names neither a part nor an order becomes the first of a part of its own. Its
// random name collides with none, so no clock must order the requests of several processes.
func (l *Locker) complete(req Request, draws bool) (Request, error) {
	if draws && req.Part == "" && req.Order == (Order{}) {
		req.Part, req.Order = rand.Text()[:16], Order{Attempt: 1}
	}
	if req.HoldOnly && req.HoldTTL > 0 { // the default of TTL may be longer
		setDefault(&req.TTL, req.HoldTTL)
	}
	setDefault(&req.TTL, l.cfg.TTL)
	if req.HoldTTL != 0 && !req.Persist {
		return req, &InvalidError{Field: "Request.HoldTTL", Value: req.HoldTTL.String(), Bound: "0 without Request.Persist"}
	}
	if req.Persist {
		setDefault(&req.HoldTTL, max(l.cfg.HoldTTL, req.TTL))
	} else {
		req.HoldTTL = req.TTL
	}
	setDefault(&req.Owner, req.LockID)
	setDefault(&req.Host, l.cfg.Host)
	req.Resources = slices.Clone(req.Resources)
	for i := range req.Resources {
		setDefault(&req.Resources[i].Mode, ModeExclusive)
	}
	if err := req.check(); err != nil {
		return req, err
	}
	setDefault(&req.Call, rand.Text())
	slices.SortFunc(req.Resources, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
	return req, nil
}

// entryID is the ID of the entry that the request makes on a resource. Renewals name entries by it
// alone, several of many resources in one statement, so requests with the same Call, but another part
// or order, have other IDs, and so have the resources of one request.
func (r *Request) entryID(resource string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %q", r.Call, r.Part, r.Order.number(), resource))
	return hex.EncodeToString(sum[:16])
}

// waits reports whether the request keeps its hold only while it waits for other resources.
func (r *Request) waits() bool { return r.Persist && r.Within != "" && !r.HoldOnly }

// keptTTL returns the time for which the kept hold lasts after a grant or a renewal. A hold that is kept
// only while the request waits for other resources lasts for the part's TTL.
func (r *Request) keptTTL() time.Duration {
	if r.waits() {
		return r.TTL
	}
	return r.HoldTTL
}

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

// CheckMode returns an *InvalidError that names the field if no request may have the mode and the limit of r.
func CheckMode(field string, r Resource) error {
	return firstError(
		refuse(r.Mode != ModeExclusive && r.Mode != ModeShared, field+".Mode", quote(string(r.Mode)), `"X" (exclusive) or "S" (shared)`),
		refuse(r.Mode == ModeExclusive && r.Limit != 0, field+".Limit", strconv.Itoa(r.Limit), "0 in exclusive mode"),
		refuse(r.Limit == noPlaces, field+".Limit", "0", limitBound),
		refuse(r.Limit < 0 || r.Limit > maxLimit, field+".Limit", strconv.Itoa(r.Limit), limitBound),
	)
}
