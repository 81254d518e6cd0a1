package lockcore

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
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// Mode decides who else may hold a resource at the same time.
type Mode string

const (
	// ModeExclusive admits no other lock ID. It is the default.
	ModeExclusive Mode = "X"
	// ModeShared admits other shared holds; with a limit it is a semaphore.
	ModeShared Mode = "S"
	// ModePool asks for any free member of a pool. Others may hold other members.
	ModePool Mode = "P"
)

// String returns "exclusive", "shared" or "pool".
func (m Mode) String() string {
	switch m {
	case ModeShared:
		return "shared"
	case ModePool:
		return "pool"
	}
	return "exclusive"
}

// Stronger returns the mode that covers the other.
func (m Mode) Stronger(other Mode) Mode { return Mode(rules.Stronger(string(m), string(other))) }

// Resource is a thing to lock, and the mode in which to lock it. Make one with [Exclusive], [Shared],
// [SharedLimit] or [Pool].
type Resource struct {
	// Name is the resource's name, such as "account/42": 1 to 512 bytes of valid UTF-8 without NUL.
	Name string `json:"name"`
	// Mode defaults to ModeExclusive.
	Mode Mode `json:"mode,omitempty"`
	// Limit, for ModeShared only, is the number of lock IDs that may hold the resource once this request
	// is granted, itself included: 1 to 1,000,000. Defaults to 0: no limit. It belongs to the request: others
	// may ask with another limit.
	Limit int `json:"limit,omitempty"`
}

// Exclusive returns a request for name that excludes all other lock IDs.
func Exclusive(name string) Resource { return Resource{Name: name, Mode: ModeExclusive} }

// Shared returns a request for name that admits any number of other shared holders.
func Shared(name string) Resource { return Resource{Name: name, Mode: ModeShared} }

// SharedLimit returns a request for one of limit permits on name: a semaphore. The limit belongs to this
// request and not to name, so let all requests give the same one. A limit of 0 is refused; [Shared] has no limit.
func SharedLimit(name string, limit int) Resource {
	if limit == 0 {
		limit = zeroLimit
	}
	return Resource{Name: name, Mode: ModeShared, Limit: limit}
}

// Pool returns a request for one member of the pool name, any that is free: [Lease].Member names it. A lock ID has one
// member of a pool, and keeps it. Operators make pools, by [Locker.SetPolicy] or "lockstep pool"; until they have, the error
// matches [ErrNoPool].
func Pool(name string) Resource { return Resource{Name: name, Mode: ModePool} }

// zeroLimit marks a semaphore with a limit of 0, since Limit: 0 means no limit.
const zeroLimit = math.MinInt32

// Forever, as a TTL, makes a lock that never expires. If its process dies, the lock stays until it is
// released.
const Forever time.Duration = math.MaxInt64

// Request asks for one or several resources in the name of one lock ID. For most requests LockID and
// Resources are enough.
type Request struct {
	// LockID names who locks: 1 to 1,500 bytes of valid UTF-8 without NUL. Requests of one lock ID never
	// block each other.
	LockID string
	// Resources are acquired in the order of their names, all or none. 1 to 100, no name twice.
	Resources []Resource
	// TTL is the time without a renewal after which the lease expires: 100 ms to ten years, or Forever.
	// Defaults to Config.TTL.
	TTL time.Duration
	// MaxWait is the longest wait of Acquire. Defaults to no limit.
	MaxWait time.Duration
	// Owner names one thread of work that makes several requests, perhaps under several lock IDs. Set it if
	// two such owners can wait for each other: while a request of an owner waits, the search for deadlocks
	// assumes that the owner releases nothing. At most 512 bytes. Defaults to LockID.
	Owner string
	// Started is the time at which the owner began. In a deadlock, the owner that started last gives up.
	// Defaults to the time at which the request queued.
	Started time.Time
	// NeverVictim keeps the request from giving up in a deadlock, unless all requests in the deadlock have
	// set it.
	NeverVictim bool
	// Priority is 1, which is first, to 5. A request that must wait passes waiters of a greater number. Each ten
	// minutes of waiting count like a number less, so that nobody is passed for more than 40 minutes. It has no
	// effect before [Locker.EnablePriorities], or the first [Policy]. Defaults to 0, which is 3.
	Priority int
	// Host is the owner's process or machine, for people. At most 255 bytes. Defaults to Config.Host.
	Host string
	// Comment is for people. At most 1,024 bytes.
	Comment string
}

// step returns the request in the form that all requests have below: as the first of a new part.
func (r *Request) step() StepRequest {
	return StepRequest{
		Caller: Caller{LockID: r.LockID}, Resources: r.Resources, TTL: r.TTL, MaxWait: r.MaxWait, Owner: r.Owner, Started: r.Started,
		NeverVictim: r.NeverVictim, Priority: r.Priority, Host: r.Host, Comment: r.Comment,
	}
}

// HoldTTL returns Config.HoldTTL, or its default.
func (l *Steps) HoldTTL() time.Duration { return l.cfg.HoldTTL }

// Order numbers the requests of one part: a schedule number, and an attempt, which begins at 1 for each
// schedule.
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

// Caller identifies a request: who asks, in the name of whom.
type Caller struct {
	// LockID names the hold: 1 to 1,500 bytes of valid UTF-8 without NUL. Requests of one lock ID
	// never block each other.
	LockID string
	// Run is the workflow run that makes the request, if the party is a workflow. At most
	// 512 bytes. If another run of the party holds or waits, or has replaced this run, the error is an
	// *[OtherRunError], and nothing is taken. A lock ID is used either always with a run or never.
	// Defaults to none.
	Run string
	// Part names the user of the hold that makes the request, such as a step of a saga. At most 512
	// bytes. A later request of the same part supersedes the earlier one. Defaults, without an Order, to
	// a random name: the request is independent of others of the same lock ID.
	Part string
	// Order is the number of this request among the requests of the same part. It is required with Part
	// and for Enter, since such a request can be repeated. Defaults to the first order of a new part.
	Order Order
	// Saga is the path of the step's saga, for [Steps.Raise], such as "2/5" for saga 5 inside saga 2. At most
	// 512 bytes. Defaults to none.
	Saga string
	// Within, with Run, is the lock ID of the workflow to which a step with a lock ID of its own belongs.
	// Kept holds of the workflow neither block the request nor count under its limit, and while the
	// workflow keeps the resource, the request skips the queue. With Keep, a hold lasts for HoldTTL
	// while the step waits for other resources; once the step has all of them, a hold ends with its part.
	Within string
}

// callerOf returns a caller as it is stored.
func callerOf(c Caller) rules.Caller {
	return rules.Caller{LockID: c.LockID, Run: c.Run, Part: c.Part, Order: c.Order.number(), Saga: c.Saga, Within: c.Within}
}

// leaseOn returns the lease that the request may have got on a resource, to leave it.
func (r *StepRequest) leaseOn(resource string) Lease {
	return Lease{Resource: resource, LockID: r.LockID, Run: r.Run, Part: r.Part, Order: r.Order, id: r.entryID(resource)}
}

// complete returns the request with its defaults and sorted resources, or an *InvalidError. With draws,
// a request without a part and an order becomes the first of a new part. The part's random name collides
// with no other, so no clock must order the requests of several processes.
func (l *Locker) complete(req StepRequest, draws bool) (StepRequest, error) {
	if draws && req.Part == "" && req.Order == (Order{}) {
		req.Part, req.Order = rand.Text()[:16], Order{Attempt: 1}
	}
	if req.HoldOnly && req.HoldTTL > 0 { // the default of TTL may be longer
		req.TTL = cmp.Or(req.TTL, req.HoldTTL)
	}
	req.TTL = cmp.Or(req.TTL, l.cfg.TTL)
	if req.HoldTTL != 0 && !req.Keep {
		return req, &InvalidError{Field: "Request.HoldTTL", Value: req.HoldTTL.String(), Bound: "0 without Request.Keep"}
	}
	if req.Keep {
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
func (r *StepRequest) entryID(resource string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %q", r.Call, r.Part, r.Order.number(), resource))
	return hex.EncodeToString(sum[:16])
}

// keepsWhileWaiting reports whether the request keeps its hold only while it waits for other resources.
func (r *StepRequest) keepsWhileWaiting() bool { return r.Keep && r.Within != "" && !r.HoldOnly }

// keptTTL returns the time for which the kept hold lasts after a grant or a renewal. A hold that is kept
// only while the request waits for other resources lasts for the part's TTL.
func (r *StepRequest) keptTTL() time.Duration {
	if r.keepsWhileWaiting() {
		return r.TTL
	}
	return r.HoldTTL
}

// check returns an *InvalidError if no database would ever accept the request.
func (r *StepRequest) check() error {
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
		checkRange("Request.Priority", r.Priority, 0, rules.LowestPriority),
		checkRange("Request.Order.Schedule", int(r.Order.Schedule), 0, math.MaxInt32),
	}
	errs = append(errs, r.checkRun()...)
	errs = append(errs, refuse(r.HoldOnly && (!r.Keep || r.Queued), "Request.HoldOnly", "true", "false without Request.Keep or with Request.Queued"))
	if r.Owner != r.LockID { // the default, which may be longer
		errs = append(errs, checkText("Request.Owner", r.Owner, 0, maxName))
	}
	names := make([]string, len(r.Resources))
	for i, res := range r.Resources {
		field := fmt.Sprintf("Request.Resources[%d]", i)
		twice := slices.Contains(names[:i], res.Name)
		errs = append(errs, checkMode(field, res), refuse(twice, field+".Name", quote(res.Name), "each resource once in a request"))
		names[i] = res.Name
	}
	return cmp.Or(append(errs, checkResources("Request.Resources", names, ".Name"),
		refuse(r.Order == (Order{}), "Request.Order", r.Order.String(),
			"0.1 or more for a request that queues, or that names its part: it is asked again by it"))...)
}

// checkSession refuses a request whose leases no Session can renew.
func (r *StepRequest) checkSession() error {
	return refuse(r.HoldOnly, "Request.HoldOnly", "true", "false, except with Enter and Recheck: a Session renews parts")
}

// checkRun checks the fields that depend on the run.
func (r *StepRequest) checkRun() []error {
	return []error{
		checkText("Request.Run", r.Run, 0, maxName),
		checkText("Request.TakeOver", r.TakeOver, 0, maxName),
		checkText("Request.Within", r.Within, 0, maxLockID),
		refuse(r.TakeOver != "" && (r.Run == "" || r.TakeOver == r.Run), "Request.TakeOver", quote(r.TakeOver),
			"another run than Request.Run, which is set"),
		refuse(r.Within != "" && (r.Run == "" || r.Within == r.LockID), "Request.Within", quote(r.Within), "another lock ID than the request's, with Request.Run"),
	}
}

// checkMode returns an *InvalidError that names the field if no request may have the mode and the limit of r.
func checkMode(field string, r Resource) error {
	return cmp.Or(
		refuse(r.Mode != ModeExclusive && r.Mode != ModeShared && r.Mode != ModePool, field+".Mode", quote(string(r.Mode)), `"X" (exclusive), "S" (shared) or "P" (pool)`),
		refuse(r.Mode != ModeShared && r.Limit != 0, field+".Limit", strconv.Itoa(r.Limit), "0 in exclusive mode and of a pool"),
		refuse(r.Limit == zeroLimit, field+".Limit", "0", limitBound),
		refuse(r.Limit < 0 || r.Limit > maxLimit, field+".Limit", strconv.Itoa(r.Limit), limitBound),
	)
}

// Bounds of arguments.
const (
	maxName      = store.MaxName
	maxLockID    = store.MaxLockID
	maxComment   = 1024
	maxResources = 100
	maxLimit     = 1_000_000
	limitBound   = "1 to 1,000,000; lockcore.Shared has no limit"
)

// checkEnd checks the arguments of an operation that ends or extends holds. A first fence names a hold on
// one resource.
func checkEnd(field, lockID string, firstFence int64, resources []string) error {
	return cmp.Or(
		checkText(field+".LockID", lockID, 1, maxLockID),
		checkResources(field+".Resources", resources, ""),
		refuse(firstFence < 0 || (firstFence > 0 && len(resources) != 1), field+".FirstFence", strconv.FormatInt(firstFence, 10),
			"that of a lease, with one resource; or 0"),
	)
}

func checkResources(field string, names []string, of string) error {
	return cmp.Or(checkRange("len("+field+")", len(names), 1, maxResources), checkNames(field, names, of))
}

func checkNames(field string, names []string, of string) error {
	var errs []error
	for i, name := range names {
		errs = append(errs, checkText(fmt.Sprintf("%s[%d]%s", field, i, of), name, 1, maxName))
	}
	return cmp.Or(errs...)
}

func checkText(field, value string, atLeast, atMost int) error {
	invalid := len(value) < atLeast || len(value) > atMost || !utf8.ValidString(value) || strings.ContainsRune(value, 0)
	return refuse(invalid, field, quote(value), fmt.Sprintf("%d to %d bytes of valid UTF-8 without NUL", atLeast, atMost))
}

func checkTTL(field string, d time.Duration) error {
	return refuse(d != Forever && (d < minTTL || d > maxTTL), field, d.String(), fmt.Sprintf("%v to ten years, or lockcore.Forever", minTTL))
}

func checkAtLeast(field string, d, least time.Duration, of string) error {
	return refuse(d < least, field, d.String(), fmt.Sprintf("at least %s, which is %v", of, least))
}

func checkRange[T int | time.Duration](field string, v, least, most T) error {
	return refuse(v < least || v > most, field, fmt.Sprint(v), fmt.Sprintf("%v to %v", least, most))
}

// refuse returns an *InvalidError if invalid.
func refuse(invalid bool, field, value, bound string) error {
	if !invalid {
		return nil
	}
	return &InvalidError{Field: field, Value: value, Bound: bound}
}

// quote quotes a value, and shortens a long one.
func quote(s string) string {
	const most = 64
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + fmt.Sprintf("… (%d bytes)", len(s))
}

// CheckLocks returns an *InvalidError if no Locker would accept the Resources, the TTL and the HoldTTL of a
// request. prefix replaces "Request." in the names of the fields. It depends on its arguments alone.
func (r StepRequest) CheckLocks(prefix string) error {
	names := make([]string, len(r.Resources))
	var modes []error
	for i, res := range r.Resources {
		field := fmt.Sprintf("%sResources[%d]", prefix, i)
		res.Mode = cmp.Or(res.Mode, ModeExclusive)
		modes = append(modes, checkMode(field, res), refuse(slices.Contains(names[:i], res.Name), field+".Name", quote(res.Name), "each resource once in a request"))
		names[i] = res.Name
	}
	return cmp.Or(
		checkResources(prefix+"Resources", names, ".Name"), cmp.Or(modes...),
		checkOptionalTTL(prefix+"TTL", r.TTL), checkOptionalTTL(prefix+"HoldTTL", r.HoldTTL),
	)
}

// checkOptionalTTL accepts 0, which selects the default, too.
func checkOptionalTTL(field string, d time.Duration) error {
	if d == 0 {
		return nil
	}
	return checkTTL(field, d)
}
