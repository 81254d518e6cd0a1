package janitor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/log"
	"golang.org/x/time/rate"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Defaults and bounds of [Options].
const (
	DefaultInterval          = time.Minute
	DefaultRequestsPerSecond = 50

	minInterval  = 100 * time.Millisecond
	maxInterval  = time.Hour
	maxQuestions = 10_000
)

const (
	// refusedPause is the number of intervals that a janitor pauses after Temporal has refused it.
	refusedPause = 10
	// releaseTimeout bounds the release of the janitor's own lock, which otherwise ends with its TTL.
	releaseTimeout = 5 * time.Second
)

// Locker is the part of a *lockcore.Steps that a janitor uses.
type Locker interface {
	Status(ctx context.Context, f lockcore.Filter) iter.Seq2[lockcore.Status, error]
	Extend(ctx context.Context, lockID, run, resource string) (again time.Duration, err error)
	Refresh(ctx context.Context, waiter lockcore.Lease) error
	End(ctx context.Context, r lockcore.Release) (ended bool, err error)
	LeaveQueue(ctx context.Context, lease lockcore.Lease) (ended bool, err error)
	TryAcquire(ctx context.Context, req lockcore.StepRequest) (*lockcore.Session, error)
	WatchFor(resource string)
}

// Options configure a janitor.
type Options struct {
	// Locker has the locks. Required. Queues are watched if it has a listener: see [lockcore.Steps.OnWakeup].
	Locker Locker
	// Temporal is asked about runs. Required.
	Temporal Service
	// Namespace is the name of the namespace, and NamespaceID its ID, with which lock IDs begin. Both are required.
	Namespace, NamespaceID string
	// Interval is the time between the beginnings of two rounds: 100 ms to 1 h. Defaults to DefaultInterval.
	Interval time.Duration
	// RequestsPerSecond bounds the questions to Temporal: 1 to 10,000. Defaults to DefaultRequestsPerSecond.
	RequestsPerSecond int
	// OnRound is called after each round, for metrics. It must not block. Defaults to none.
	OnRound func(Result)
	// Logger gets releases and failures. Required.
	Logger log.Logger
}

// CheckPace refuses an Interval or RequestsPerSecond out of bounds, for callers that let users set them. 0 is the default. The error is a
// *lockcore.InvalidError whose field begins with prefix.
func CheckPace(prefix string, interval time.Duration, questions int) error {
	switch {
	case interval != 0 && (interval < minInterval || interval > maxInterval):
		bound := fmt.Sprintf("%v to %v", minInterval, maxInterval)
		return &lockcore.InvalidError{Field: prefix + "Interval", Value: interval.String(), Bound: bound}
	case questions < 0 || questions > maxQuestions:
		bound := fmt.Sprintf("1 to %d", maxQuestions)
		return &lockcore.InvalidError{Field: prefix + "RequestsPerSecond", Value: fmt.Sprint(questions), Bound: bound}
	}
	return nil
}

// Janitor does rounds in one process. Make it with [New].
type Janitor struct {
	Options
	// temporal is Options.Temporal, or what has replaced it.
	temporal atomic.Pointer[Service]
	// ask is askTemporal, except in tests.
	ask  func(ctx context.Context, workflowID, run string) (answer, error)
	pace *rate.Limiter
	// lockID identifies this janitor as the holder of its lock. Lock IDs of workflows never begin with "%j", since "%"
	// is followed by two hexadecimal digits or a hash there.
	lockID string
	// refused is set from the first refusal by Temporal, which is logged, until an answer.
	refused bool
	// damaged contains the times of the logs about damaged documents, by name. Only one round uses it at a time.
	damaged map[string]time.Time
}

// New makes a janitor, which does nothing before [Janitor.Run]. The options must be complete, and pass [CheckPace].
func New(o Options) *Janitor {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.RequestsPerSecond = cmp.Or(o.RequestsPerSecond, DefaultRequestsPerSecond)
	j := &Janitor{
		Options: o, pace: rate.NewLimiter(rate.Limit(o.RequestsPerSecond), 1), lockID: "%janitor/" + rand.Text(), damaged: map[string]time.Time{},
	}
	j.ask = j.askTemporal
	j.UseTemporal(o.Temporal)
	return j
}

// UseTemporal replaces the connection to Temporal.
func (j *Janitor) UseTemporal(service Service) { j.temporal.Store(&service) }

// LockName returns the resource that the janitor of a namespace locks while it works.
func LockName(namespaceID string) string { return "lockstep.janitor/" + namespaceID }

// Run does rounds while this janitor is the active one of its namespace, and otherwise waits to become it. It returns
// when ctx ends or the Locker is closed, and has released the janitor's lock then.
func (j *Janitor) Run(ctx context.Context) {
	for {
		session, err := j.Locker.TryAcquire(ctx, lockcore.StepRequest{
			Caller: lockcore.Caller{LockID: j.lockID}, Resources: []lockcore.Resource{lockcore.Exclusive(LockName(j.NamespaceID))},
			Comment: "asks Temporal about the locks of the workflows in the namespace " + j.Namespace,
		})
		pause := j.Interval
		switch {
		case err == nil:
			pause = j.work(session)
		case ctx.Err() != nil || errors.Is(err, lockcore.ErrClosed):
			return
		case !errors.Is(err, lockcore.ErrBusy):
			j.Logger.Warn("lockstep: the janitor could not acquire its own lock", "namespace", j.Namespace, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// work does rounds until the session of the janitor's lock ends, and returns the pause before the next attempt.
func (j *Janitor) work(session *lockcore.Session) time.Duration {
	ctx := session.Context()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = session.Release(ctx) // otherwise it ends with its TTL
	}()
	rounds := time.NewTicker(j.Interval)
	defer rounds.Stop()
	for {
		if err := j.round(ctx); err != nil {
			return refusedPause * j.Interval
		}
		select {
		case <-ctx.Done():
			return j.Interval
		case <-rounds.C:
		}
	}
}

// round does a round and reports it. It returns an error only if Temporal refused the janitor.
func (j *Janitor) round(ctx context.Context) error {
	result, err := j.Round(ctx)
	if j.OnRound != nil {
		j.OnRound(result)
	}
	switch {
	case errors.Is(err, errRefused):
		if !j.refused {
			j.Logger.Warn("lockstep: the janitor stops for ten intervals, because Temporal refuses it", "namespace", j.Namespace, "error", err)
		}
		j.refused = true
		return err
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the end of ctx cut the round off
	case err != nil:
		j.Logger.Warn("lockstep: the janitor could not list the locks; the next round tries again", "namespace", j.Namespace, "error", err)
	case result.Asked > result.Failed:
		j.refused = false
	}
	j.Logger.Debug("lockstep: the janitor's round", "namespace", j.Namespace, "result", result.String())
	return nil
}
