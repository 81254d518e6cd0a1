package janitor

import (
	"context"
	"fmt"
	"iter"
	"time"

	"go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
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

// Locker is what a janitor needs of a *lockcore.Locker.
type Locker interface {
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
	Extend(ctx context.Context, lockID, run string, resources ...string) (again time.Duration, err error)
	Release(ctx context.Context, r lockcore.Release) error
	Leave(ctx context.Context, leases ...lockcore.Lease) error
	TryAcquire(ctx context.Context, req lockcore.Request) (*lockcore.Session, error)
	OnTurn(f func(lockcore.Turn)) (stop func())
	Tend(resource string)
}

// Options are what a janitor works with.
type Options struct {
	// Locker has the locks. Required.
	Locker Locker
	// Temporal is asked about runs. Required.
	Temporal protocol.Describer
	// Namespace is the name of the namespace whose runs are asked about, and NamespaceID its ID,
	// with which their lock IDs begin. Both are required.
	Namespace, NamespaceID string
	// Interval is how often a round begins: 100 ms to 1 h. Defaults to DefaultInterval.
	Interval time.Duration
	// QuestionsPerSecond bounds the questions to Temporal: 1 to 10,000. Defaults to
	// DefaultQuestionsPerSecond.
	QuestionsPerSecond int
	// Wake is called with requests whose turn has come, while the janitor is in office, as by
	// [lockcore.Locker.OnTurn]. It must not block. Defaults to none: then queues are tended only
	// if the Locker has another listener.
	Wake func(lockcore.Turn)
	// OnRound is called after each round, for metrics. It must not block. Defaults to none.
	OnRound func(Result)
	// Logger is told of releases and failures. Required.
	Logger log.Logger
}

// complete fills in defaults and refuses what cannot be.
func (o Options) complete() (Options, error) {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.QuestionsPerSecond == 0 {
		o.QuestionsPerSecond = DefaultQuestionsPerSecond
	}
	for _, field := range []struct {
		name, value, bound string
		wrong              bool
	}{
		{"Locker", "nil", "a Locker", o.Locker == nil},
		{"Temporal", "nil", "a connection to Temporal", o.Temporal == nil},
		{"Logger", "nil", "a logger", o.Logger == nil},
		{"Namespace", `""`, "1 byte or more", o.Namespace == ""},
		{"NamespaceID", `""`, "1 byte or more", o.NamespaceID == ""},
		{"Interval", o.Interval.String(), fmt.Sprintf("%v to %v", minInterval, maxInterval), o.Interval < minInterval || o.Interval > maxInterval},
		{
			"QuestionsPerSecond", fmt.Sprint(o.QuestionsPerSecond), fmt.Sprintf("1 to %d", maxQuestions),
			o.QuestionsPerSecond < 1 || o.QuestionsPerSecond > maxQuestions,
		},
	} {
		if field.wrong {
			return o, &lockcore.InvalidError{Field: "janitor.Options." + field.name, Value: field.value, Bound: field.bound}
		}
	}
	return o, nil
}
