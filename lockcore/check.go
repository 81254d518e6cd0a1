package lockcore

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// CheckLocks returns an *InvalidError if no Locker would accept the Resources, the TTL and the HoldTTL of a
// request. prefix replaces "Request." in the names of the fields. It depends on its arguments alone.
func (r StepRequest) CheckLocks(prefix string) error {
	names := make([]string, len(r.Resources))
	var modes []error
	for i, res := range r.Resources {
		field := fmt.Sprintf("%sResources[%d]", prefix, i)
		res.Mode = cmp.Or(res.Mode, ModeExclusive)
		modes = append(modes, checkMode(field, res), refuse(slices.Contains(names[:i], res.Name), field+".Name", quote(res.Name), "each resource once in a request"))
		names[i] = res.Name
	}
	return cmp.Or(
		checkResources(prefix+"Resources", names, ".Name"), cmp.Or(modes...),
		checkOptionalTTL(prefix+"TTL", r.TTL), checkOptionalTTL(prefix+"HoldTTL", r.HoldTTL),
	)
}

// checkOptionalTTL accepts 0, which selects the default, too.
func checkOptionalTTL(field string, d time.Duration) error {
	if d == 0 {
		return nil
	}
	return checkTTL(field, d)
}
