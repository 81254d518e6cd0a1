// Package startup waits for the database when a process starts. During an election no member of a replica set answers for
// about ten seconds. A process that runs already repeats its commands; one that starts must not end because of it.
package startup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
	"go.temporal.io/sdk/log"
)

const (
	// Patience is the time for which a process waits for the database.
	Patience = 30 * time.Second
	// pause is the time between two attempts, and reminder that between two lines in the log.
	pause    = 500 * time.Millisecond
	reminder = 10 * time.Second
)

// ErrNoDatabase is returned if no database answered for Patience.
var ErrNoDatabase = errors.New("no database answered")

// Await calls connect, which sends commands to the database, until it returns nil or an error that is an answer, and logs that
// it waits. After Patience the error matches [ErrNoDatabase] and that of the last attempt. If ctx ends, it is the cause of that.
func Await(ctx context.Context, logger log.Logger, connect func(context.Context) error) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	var last error
	for logged := time.Duration(-1); ; {
		err := connect(limited)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil || !Unanswered(err):
			return err
		case last == nil || limited.Err() == nil: // the last error may only be that the time is over
			last = err
		}
		waited := time.Since(began)
		if waited >= Patience {
			return fmt.Errorf("%w for %s: %w", ErrNoDatabase, Patience, last)
		}
		if logged < 0 || waited-logged >= reminder {
			logged = waited
			logger.Warn("lockstep: waits for the database, which does not answer", "waited", waited.Round(time.Second), "atMost", Patience, "error", last)
		}
		select {
		case <-limited.Done():
		case <-time.After(pause):
		}
	}
}

// Unanswered reports whether an error means that no primary answered, rather than being the answer of one.
func Unanswered(err error) bool {
	var refused *auth.Error
	if errors.As(err, &refused) {
		return false
	}
	var none topology.ServerSelectionError
	if errors.As(err, &none) || mongo.IsNetworkError(err) || mongo.IsTimeout(err) {
		return true
	}
	var answer mongo.ServerError
	return errors.As(err, &answer) && (answer.HasErrorLabel("RetryableWriteError") || notPrimary(answer))
}

// notPrimary reports whether a member answered that it is not the primary, or is about to stop being one.
func notPrimary(answer mongo.ServerError) bool {
	for _, code := range []int{91, 189, 10058, 10107, 11600, 11602, 13435, 13436} {
		if answer.HasErrorCode(code) {
			return true
		}
	}
	return false
}
