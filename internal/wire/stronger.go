package wire

import (
	"cmp"
	"slices"

	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/party"
)

// Merge returns the resources with more added to them: one request for each name, the stronger one of those that share it. It
// does not change its arguments.
func Merge(resources []lockcore.Resource, more ...lockcore.Resource) []lockcore.Resource {
	merged := slices.Clone(resources)
	for _, r := range more {
		i := slices.IndexFunc(merged, func(own lockcore.Resource) bool { return own.Name == r.Name })
		if i < 0 {
			merged = append(merged, r)
			continue
		}
		merged[i] = Stronger(merged[i], r)
	}
	return merged
}

// Stronger returns the stronger of two requests for one resource: exclusive before shared, and a lower limit before a higher one.
// An invalid request wins over a valid one, so that it is refused.
func Stronger(a, b lockcore.Resource) lockcore.Resource {
	switch {
	case isInvalid(a):
	case isInvalid(b):
		a.Mode, a.Limit = b.Mode, b.Limit
	case isShared(a) != isShared(b):
		if isShared(a) {
			a.Mode, a.Limit = b.Mode, b.Limit
		}
	case isShared(a) && b.Limit > 0 && (a.Limit == 0 || b.Limit < a.Limit):
		a.Limit = b.Limit
	}
	return a
}

// isInvalid reports whether no request may have the mode and the limit of r. The default mode is exclusive.
func isInvalid(r lockcore.Resource) bool {
	r.Mode = cmp.Or(r.Mode, lockcore.ModeExclusive)
	return party.CheckMode("", r) != nil
}

func isShared(r lockcore.Resource) bool { return r.Mode == lockcore.ModeShared }
