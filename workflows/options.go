package workflows

import (
	"fmt"
	"strconv"

	"github.com/temporal-lockstep/lockstep/internal/runstate"
)

// check returns an error that matches lockcore.ErrInvalid if RunSaga cannot run with the options.
func (o SagaOptions) check() error {
	if o.DeadlockRetries < -1 || o.DeadlockRetries > maxRetries {
		return runstate.Invalid("SagaOptions.DeadlockRetries", strconv.Itoa(o.DeadlockRetries), fmt.Sprintf("-1 to %d", maxRetries))
	}
	if o.ReleaseTimeout < 0 {
		return runstate.Invalid("SagaOptions.ReleaseTimeout", o.ReleaseTimeout.String(), "0 (the default), or more")
	}
	return nil
}
