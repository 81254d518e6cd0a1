package janitor

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Defaults and bounds of [Options].
const (
	DefaultInterval           = time.Minute
	DefaultQuestionsPerSecond = 50

	minInterval  = 100 * time.Millisecond
	maxInterval  = time.Hour
	maxQuestions = 10_000
)

// Locker is what a janitor needs of a *party.Locker.
type Locker interface {
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
	Extend(ctx context.Context, lockID, run, resource string, handOver bool) (again time.Duration, err error)
	KeepPosition(ctx context.Context, place lockcore.Lease) error
	Release(ctx context.Context, r party.Release) error
	LeaveQueue(ctx context.Context, leases ...lockcore.Lease) error
	TryAcquire(ctx context.Context, req party.Request) (*party.Session, error)
	WatchFor(resource string)
}

// Options are what a janitor works with.
type Options struct {
	// Locker has the locks. Required. Queues are tended if it has a listener: see
	// [party.Locker.OnWakeup].
	Locker Locker
	// Temporal is asked about runs. Required.
	Temporal currentrun.Describer
	// Namespace is the name of the namespace whose runs are asked about, and NamespaceID its ID,
	// with which their lock IDs begin. Both are required.
	Namespace, NamespaceID string
	// Interval is how often a round begins: 100 ms to 1 h. Defaults to DefaultInterval.
	Interval time.Duration
	// QuestionsPerSecond bounds the questions to Temporal: 1 to 10,000. Defaults to
	// DefaultQuestionsPerSecond.
	QuestionsPerSecond int
	// OnRound is called after each round, for metrics. It must not block. Defaults to none.
	OnRound func(Result)
	// Logger is told of releases and failures. Required.
	Logger log.Logger
}

// complete fills in defaults and refuses what cannot be.
func (o Options) complete() (Options, error) {
	for _, field := range []struct {
		name, value, bound string
		wrong              bool
	}{
		{"Locker", "nil", "a Locker", o.Locker == nil},
		{"Temporal", "nil", "a connection to Temporal", o.Temporal == nil},
		{"Logger", "nil", "a logger", o.Logger == nil},
		{"Namespace", `""`, "1 byte or more", o.Namespace == ""},
		{"NamespaceID", `""`, "1 byte or more", o.NamespaceID == ""},
	} {
		if field.wrong {
			return o, &lockcore.InvalidError{Field: "janitor.Options." + field.name, Value: field.value, Bound: field.bound}
		}
	}
	err := CheckPace("janitor.Options.", o.Interval, o.QuestionsPerSecond)
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.QuestionsPerSecond = cmp.Or(o.QuestionsPerSecond, DefaultQuestionsPerSecond)
	return o, err
}

// CheckPace refuses an Interval and QuestionsPerSecond that are out of bounds. 0 is the default. The
// error is a *lockcore.InvalidError whose field begins with prefix.
func CheckPace(prefix string, interval time.Duration, questions int) error {
	switch {
	case interval != 0 && (interval < minInterval || interval > maxInterval):
		bound := fmt.Sprintf("%v to %v", minInterval, maxInterval)
		return &lockcore.InvalidError{Field: prefix + "Interval", Value: interval.String(), Bound: bound}
	case questions < 0 || questions > maxQuestions:
		bound := fmt.Sprintf("1 to %d", maxQuestions)
		return &lockcore.InvalidError{Field: prefix + "QuestionsPerSecond", Value: fmt.Sprint(questions), Bound: bound}
	}
	return nil
}
