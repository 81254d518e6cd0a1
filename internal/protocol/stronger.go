package protocol

import "github.com/temporal-lockstep/lockstep/lockcore"

// Stronger is the stronger of two requests for one resource: exclusive before shared, and a lower limit before a higher one.
func Stronger(a, b lockcore.Resource) lockcore.Resource {
	switch {
	case isShared(a) != isShared(b):
		if isShared(a) {
			a.Mode, a.Limit = b.Mode, b.Limit
		}
	case isShared(a) && b.Limit > 0 && (a.Limit == 0 || b.Limit < a.Limit):
		a.Limit = b.Limit
	}
	return a
}

func isShared(r lockcore.Resource) bool { return r.Mode == lockcore.ModeShared }
