package janitor

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"golang.org/x/time/rate"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// intervalsOut is for how many intervals a janitor that Temporal refused does not stand for
	// office.
	intervalsOut = 10
	// giveUpWithin bounds giving the office up. What it could not end ends with its TTL.
	giveUpWithin = 5 * time.Second
)

// Janitor is the loop of one process. Make it with [New].
type Janitor struct {
	Options
	asker asker
	pace  *rate.Limiter
	// lockID names the janitor as the holder of its office. No party has one that begins with
	// "%j", since "%" in a lock ID begins two hexadecimal digits, or a hash.
	lockID string
	// refused says that Temporal refused the janitor, and that the log says so.
	refused bool
}

// New makes a janitor, which does nothing before [Janitor.Run]. The error is a
// *lockcore.InvalidError that names the option.
func New(o Options) (*Janitor, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	pace := rate.NewLimiter(rate.Limit(o.QuestionsPerSecond), 1)
	return &Janitor{Options: o, asker: temporalAsker{o.Temporal, o.Namespace, pace}, pace: pace, lockID: "%janitor/" + rand.Text()}, nil
}

// Run stands for office, and works while it has it, until ctx ends or the Locker is closed. Then it
// has given the office up.
func (j *Janitor) Run(ctx context.Context) {
	for {
		office, err := j.Locker.TryAcquire(ctx, party.Request{
			LockID: j.lockID, Resources: []lockcore.Resource{lockcore.Exclusive(Office(j.NamespaceID))},
			Comment: "asks Temporal about the locks of the workflows in the namespace " + j.Namespace,
		})
		pause := j.Interval
		switch {
		case err == nil:
			pause = j.work(office)
		case ctx.Err() != nil || errors.Is(err, lockcore.ErrClosed):
			return
		case !errors.Is(err, lockcore.ErrBusy):
			j.Logger.Warn("lockstep: the janitor could not stand for office", "namespace", j.Namespace, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Office is the resource that the janitor of a namespace locks while it works.
func Office(namespaceID string) string { return "lockstep.janitor/" + namespaceID }

// work does rounds until the office ends, and returns after what time to stand for it again.
func (j *Janitor) work(office *party.Session) time.Duration {
	ctx := office.Context()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpWithin)
		defer cancel()
		_ = office.Release(ctx) // if it fails, the office ends with its TTL
	}()
	rounds := time.NewTicker(j.Interval)
	defer rounds.Stop()
	for {
		if err := j.round(ctx); err != nil {
			return intervalsOut * j.Interval
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
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		if !j.refused {
			j.Logger.Warn("lockstep: the janitor gives its office up", "namespace", j.Namespace, "error", err)
		}
		j.refused = true
		return err
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the round was cut off by its own end
	case err != nil:
		j.Logger.Warn("lockstep: the janitor could not list the locks; the next round tries again", "namespace", j.Namespace, "error", err)
	case result.Asked > result.Failed:
		j.refused = false
	}
	j.Logger.Debug("lockstep: the janitor's round", "namespace", j.Namespace, "result", result)
	return nil
}
