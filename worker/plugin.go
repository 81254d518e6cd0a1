package worker

import "go.temporal.io/sdk/temporal"

// Plugin installs Lockstep in clients, workers and replayers. Make it with [NewPlugin]. It holds no
// resources of its own and needs no closing; it does not close the Locker.
type Plugin struct {
	*temporal.SimplePlugin
}
