package wire

import (
	"fmt"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// leastHoldTTL is the shortest HoldTTL that a guard, a Lock or the configuration of a worker may set. verifyAfter is the age up to which a commit
// trusts a lock without asking the database. It is a third of leastHoldTTL: two minutes for the longest workflow task, and eight for differences
// between the clocks of Temporal's hosts remain. Histories depend on it.
var (
	leastHoldTTL = 15 * time.Minute
	verifyAfter  = 5 * time.Minute
)

// VerifyAfter returns the age from which on a commit asks the database whether a lock is still held.
func VerifyAfter() time.Duration { return verifyAfter }

// SetHoldTTL sets the shortest HoldTTL, and the age from which on a commit asks the database, before the first workflow of the process. It is
// for tests whose holds are short. Their histories replay only with the same values.
func SetHoldTTL(least, age time.Duration) { leastHoldTTL, verifyAfter = least, age }

// CheckHoldTTL returns a *lockcore.InvalidError that names the field if a commit could trust a hold of this TTL that has expired. 0 is the
// default of the worker.
func CheckHoldTTL(field string, d time.Duration) error {
	if d == 0 || d >= leastHoldTTL {
		return nil
	}
	return &lockcore.InvalidError{
		Field: field, Value: d.String(), Bound: fmt.Sprintf("0 (the default), or at least %v: a saga commits up to %v after the use of a lock without asking", leastHoldTTL, verifyAfter),
	}
}
