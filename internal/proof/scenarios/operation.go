package scenarios

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// The TTLs, from the shortest to the longest. They are minutes, so that nothing ends too early on a
// database whose clock runs.
const (
	partTTL   = 10 * time.Minute
	claimTTL  = 20 * time.Minute
	waiterTTL = 40 * time.Minute
	holdTTL   = 60 * time.Minute
)

// Settings are those of all operations of scenarios.
var Settings = rules.Settings{ClaimTTL: claimTTL.Milliseconds()}

// line is a line of a transcript: a verb, its arguments, and options such as "shared" or "order=2".
type line struct {
	verb    string
	args    []string
	options map[string]string
	// err is the first error in an option, used of the options that were read.
	err  error
	used map[string]bool
}

var token = regexp.MustCompile(`(?:[\w-]+=)?"(?:[^"\\]|\\.)*"|\S+`)

// arguments has the number of arguments of the verbs. The other words of a line are options.
var arguments = map[string]int{
	"acquire": 2, "renew": 2, "leave": 2, "take-back": 2, "withdraw": 2, "release": 1, "verify": 1, "raise": 1, "evidence": 1, "was-lost": 1, "pass": 1, "limit": 2, "pool": 2, "promote": 1,
}

func parseLine(text string) (*line, error) {
	l := &line{options: map[string]string{}, used: map[string]bool{}}
	for i, word := range token.FindAllString(text, -1) {
		key, value, isOption := "", word, false
		if j := strings.IndexByte(word, '='); j > 0 && word[0] != '"' && len(l.args) == arguments[l.verb] {
			key, value, isOption = word[:j], word[j+1:], true
		}
		if strings.HasPrefix(value, `"`) {
			var err error
			if value, err = strconv.Unquote(value); err != nil {
				return nil, fmt.Errorf("%s: %w", word, err)
			}
		}
		switch {
		case i == 0:
			l.verb = value
		case isOption:
			l.options[key] = value
		case len(l.args) < arguments[l.verb]:
			l.args = append(l.args, value)
		default:
			l.options[value] = ""
		}
	}
	if len(l.args) < arguments[l.verb] {
		return nil, fmt.Errorf("%d arguments are missing", arguments[l.verb]-len(l.args))
	}
	return l, nil
}

func (l *line) has(option string) bool {
	_, ok := l.options[option]
	l.used[option] = true
	return ok
}

func (l *line) text(option, otherwise string) string {
	if !l.has(option) {
		return otherwise
	}
	return l.options[option]
}

func (l *line) number(option string, otherwise int64) int64 {
	switch value := l.text(option, ""); {
	case !l.has(option):
		return otherwise
	case value == "plain":
		return rules.LastPlain
	default:
		n, err := strconv.ParseInt(value, 10, 64)
		l.fail(option, err)
		return n
	}
}

func (l *line) span(option string, otherwise time.Duration) time.Duration {
	switch value := l.text(option, ""); {
	case !l.has(option):
		return otherwise
	case value == "forever":
		return 0
	default:
		d, err := time.ParseDuration(value)
		l.fail(option, err)
		return d
	}
}

func (l *line) millis(option string, otherwise time.Duration) int64 {
	return l.span(option, otherwise).Milliseconds()
}

func (l *line) fail(option string, err error) {
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("option %s: %w", option, err)
	}
}

// complete returns the first error in an option, or an error if an option was not read.
func (l *line) complete() error {
	for option := range l.options {
		if !l.used[option] && l.err == nil {
			l.err = fmt.Errorf("%s has no option %q", l.verb, option)
		}
	}
	return l.err
}

// op returns the operation of a line, or nil if its verb is none.
func (p *player) op(l *line) (op rules.Op) {
	lockID, part := "", ""
	if len(l.args) > 0 {
		lockID = l.args[0]
	}
	if len(l.args) > 1 && l.args[1] != "-" {
		part = l.args[1]
	}
	switch l.verb {
	case "acquire":
		return p.acquire(l, lockID, part)
	case "renew":
		return rules.Renew{
			Resource: p.resource, Caller: rules.Caller{LockID: lockID, Part: part, Order: l.number("order", 1)},
			Downgrade: l.has("downgrade"), TTL: l.millis("ttl", 0),
		}
	case "leave":
		return rules.Leave{
			Resource: p.resource, Caller: rules.Caller{LockID: lockID, Run: l.text("run", ""), Part: part, Order: l.number("order", 1)},
			QueueOnly: l.has("queue-only"), Keep: l.has("keep"), HoldTTL: l.millis("keep", 0),
		}
	case "take-back":
		order := l.number("order", 1)
		return rules.TakeBack{
			Resource: p.resource, Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Call: l.text("call", callID(lockID, part, order)),
		}
	case "release":
		return p.release(l, lockID)
	case "withdraw":
		return rules.Withdraw{
			Resource: p.resource, Caller: rules.Caller{LockID: lockID, Part: part, Order: l.number("order", 1)},
			Reason: l.text("reason", ""),
		}
	case "verify":
		return rules.Verify{
			Resource: p.resource, LockID: lockID, Run: l.text("run", ""), TakeOver: l.text("take-over", ""), Order: l.number("order", 0),
			LostSince: p.since(l),
		}
	case "raise":
		return rules.Raise{
			Resource: p.resource, LockID: lockID, Run: l.text("run", ""), TakeOver: l.text("take-over", ""), Saga: l.text("saga", ""),
			Order: l.number("order", 0),
		}
	case "promote":
		return rules.Promote{Resource: p.resource, LockID: lockID}
	case "settle":
		return rules.Settle{Resource: p.resource}
	}
	return nil
}

func (p *player) acquire(l *line, lockID, part string) rules.Acquire {
	order := l.number("order", 1)
	op := rules.Acquire{
		Resource: p.resource, Call: l.text("call", callID(lockID, part, order)),
		Caller: rules.Caller{
			LockID: lockID, Run: l.text("run", ""), Part: part, Order: order, Saga: l.text("saga", ""), Within: l.text("within", ""),
		},
		TakeOver: l.text("take-over", ""), Mode: rules.Shared, Limit: l.number("limit", 0), TTL: l.millis("ttl", partTTL), HoldTTL: l.millis("hold-ttl", holdTTL),
		Keep: l.has("keep") || l.has("hold-only"), HoldOnly: l.has("hold-only"), HeldSince: l.number("held-since", 0),
		Reacquire: l.has("reacquire"), NewFence: l.has("new-fence"), LostSince: p.since(l), Upgrades: l.text("upgrades", ""),
		Queue: l.has("queue") || l.has("refresh"), Refresh: l.has("refresh"), WaiterTTL: l.millis("waiter-ttl", waiterTTL),
		NextRefresh: l.millis("next-refresh", 0), MaxWaiters: l.number("max-waiters", 100),
		Priority: l.number("priority", 0), Owner: l.text("owner", lockID), Host: l.text("host", "host"), Comment: l.text("comment", "comment"), Trace: l.text("trace", "trace"),
	}
	switch {
	case l.has("exclusive"):
		op.Mode = rules.Exclusive
	case l.has("pool"):
		op.Mode = rules.Pool
	case !l.has("shared"):
		l.fail("shared", fmt.Errorf("neither shared nor exclusive, nor pool"))
	}
	return op
}

func (p *player) release(l *line, lockID string) rules.Release {
	op := rules.Release{
		Resource: p.resource, LockID: lockID, Run: l.text("run", ""), FirstFence: p.fence(l), Order: l.number("order", 0),
		Committed: l.has("committed"), Force: l.has("force"), Now: l.has("now"), Reason: l.text("force", ""),
	}
	if stopped := l.text("stopped", ""); stopped != "" {
		op.Leaving = &stopped
	}
	return op
}

// callID is the ID of the call of a request. Requests with the same part and order have the same one, unless
// they name another.
func callID(lockID, part string, order int64) string {
	return fmt.Sprintf("%s/%s/%d", lockID, part, order)
}

// fence returns the fence with the number that the option names; 0 without one.
func (p *player) fence(l *line) int64 {
	if l.text("fence", "") == "unknown" {
		return 1 // no hold began with it
	}
	n := l.number("fence", 0)
	if n > int64(len(p.fences)) {
		l.fail("fence", fmt.Errorf("there are only %d", len(p.fences)))
		return 0
	}
	if n == 0 {
		return 0
	}
	return p.fences[n-1]
}

// since returns the time from which on losses count: that of a record of evidence, such as "#2" or "#2+1ms".
func (p *player) since(l *line) time.Time {
	name, later, _ := strings.Cut(l.text("lost-since", ""), "+")
	switch {
	case name == "":
		return time.Time{}
	case name == "ever":
		return rules.LongAgo
	}
	for _, e := range p.last.Evidence {
		if fmt.Sprint("#", e.Number) == name {
			d, err := time.ParseDuration("0s" + later)
			l.fail("lost-since", err)
			return e.At.Add(d)
		}
	}
	l.fail("lost-since", fmt.Errorf("there is no record %s", name))
	return time.Time{}
}
