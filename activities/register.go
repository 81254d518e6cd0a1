package activities

import (
	"go.temporal.io/sdk/activity"

	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// Registry is what the activities are registered with: a worker, or the SDK's test environment.
type Registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register registers the activities under their names. It may be called again: the last one counts.
//
// They are registered as a struct and not one by one, for the SDK makes an alias of each method's
// name then, and a user's own activity method called Release would be taken for ours.
func Register(registry Registry, a *Activities) {
	registry.RegisterActivityWithOptions(a, activity.RegisterOptions{
		Name:                          wire.ActivityPrefix,
		DisableAlreadyRegisteredCheck: true,
	})
}
