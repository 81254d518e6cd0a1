package workflows

// SagaError is what [RunSaga] returns when compensation itself failed: the state is neither what the
// saga wanted nor what it was before, and somebody has to look.
//
// It matches, with errors.Is and errors.As, whatever Err or one of Compensations matches, with one
// exception: never a *temporal.CanceledError. So a cancelled workflow whose compensation failed closes as failed, with the
// reasons in its history, and not as cancelled, which would hide them.
type SagaError struct {
	// Err is what the saga's function returned.
	Err error
	// Compensations are the compensations that failed, in the order in which they ran.
	Compensations []*CompensationError
}

// CompensationError is the failure of one compensation.
type CompensationError struct {
	// Step is the number of the compensation, counted from 1 in the order of registration.
	Step int
	// Activity is the activity's name where [Saga.CompensateWith] registered it, else empty.
	Activity string
	// Err is what it returned.
	Err error
}

// LockError returns err as the typed error it stands for, *lockcore.BusyError, *lockcore.LostError,
// *lockcore.SupersededError or *lockcore.InvalidError, where a failure of Lockstep is in its chain,
// and nil where none is. Steps fail with errors that errors.As matches without it; it is for failures
// that took another way: of child workflows, and in clients.
func LockError(err error) error {
	return lockError(err)
}
