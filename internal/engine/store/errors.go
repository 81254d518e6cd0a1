package store

import (
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// ErrDamaged is matched by errors about a document that cannot be decoded.
var ErrDamaged = errors.New("lockstep: damaged document")

// DamagedError names a document that cannot be decoded: it was damaged, or another program wrote it. It matches
// ErrDamaged. Other documents can be used. Package lockcore returns it as its own DamagedError.
type DamagedError struct {
	// Resource is the _id of the document. An _id that is not a string is in extended JSON.
	Resource string
	// Err describes the damage.
	Err error
}

func (e *DamagedError) Error() string {
	return rules.Printable(fmt.Sprintf("lockstep: the document %q cannot be decoded: %v", e.Resource, e.Err))
}

// Is makes errors.Is(err, ErrDamaged) true.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Unwrap returns the decoder's error.
func (e *DamagedError) Unwrap() error { return e.Err }

// commandError describes the error of a command. The result matches ErrNotSent if the error proves that
// the command was not sent.
func commandError(err error, format string, args ...any) error {
	operation := fmt.Sprintf(format, args...)
	if notSent(err) {
		return fmt.Errorf("%w: %s: %w", ErrNotSent, operation, err)
	}
	return fmt.Errorf("lockstep: %s: %w", operation, err)
}

// beforeWrite describes an error that happened before a write was sent.
func beforeWrite(err error) error {
	if errors.Is(err, ErrNotSent) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotSent, err)
}

// notSent reports whether an error of the driver proves that no attempt of the command was sent. The
// proof is in Operation.Execute of the driver (v2.9.3, x/mongo/driver/operation.go). It selects a
// server, checks out a connection, and sends; after a retryable error it starts again. If an attempt
// was sent before, then an error of the selection or of the check-out is replaced with the error of
// that attempt. So these errors are returned only if nothing was sent:
//
//  1. errors of the server selection (ServerSelectionError, and a closed client),
//  2. a check-out that timed out (WaitQueueTimeoutError), or from a closed server or pool,
//  3. a check-out from a pool that is paused because its server failed. It is a poolClearedError
//     within a driver.Error. A poolClearedError without one proves nothing: it takes the place of
//     the error of an earlier attempt,
//  4. a connection that was not established (see handshakeFailed).
//
// Codes and labels of servers prove nothing. Neither does the end of a context that the driver
// reports: it may have been sending.
func notSent(err error) bool {
	if _, ok := errors.AsType[topology.ServerSelectionError](err); ok {
		return true
	}
	if _, ok := errors.AsType[topology.WaitQueueTimeoutError](err); ok {
		return true
	}
	return errors.Is(err, mongo.ErrClientDisconnected) || errors.Is(err, topology.ErrServerClosed) ||
		errors.Is(err, topology.ErrPoolClosed) || poolPaused(err) || handshakeFailed(err)
}

// PoolBusy reports whether a command was not sent because other commands used all connections of the client.
func PoolBusy(err error) bool {
	_, busy := errors.AsType[topology.WaitQueueTimeoutError](err)
	return busy
}

func poolPaused(err error) bool {
	cause, ok := errors.AsType[driver.Error](err)
	if !ok {
		return false
	}
	_, paused := cause.Wrapped.(driver.RetryablePoolError)
	return paused
}

// handshakeFailed reports whether a new connection failed before it could be used. A ConnectionError
// of a command in flight differs in its text only: its field init is not exported. If a version of
// the driver changes the text, the outcome becomes unknown, which is safe.
func handshakeFailed(err error) bool {
	cause, ok := errors.AsType[topology.ConnectionError](err)
	const text = "error occurred during connection handshake"
	return ok && strings.HasPrefix(cause.Error(), fmt.Sprintf("connection(%s) %s", cause.ConnectionID, text))
}

// contextEnded describes the end of the caller's context before a command was sent.
func contextEnded(err error, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", ErrNotSent, fmt.Sprintf(format, args...), err)
}
