package lockcore

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// CheckResources returns an *InvalidError that names the field if no request may ask for these resources: a request has 1 to 100 of them, each
// once, and each with a name of 1 to 512 bytes of valid UTF-8 without NUL. It depends on its arguments alone.
func CheckResources(field string, resources []Resource) error {
	names := make([]string, len(resources))
	var errs []error
	for i, r := range resources {
		r.Mode = cmp.Or(r.Mode, ModeExclusive)
		of := fmt.Sprintf("%s[%d]", field, i)
		errs = append(errs, CheckMode(of, r), refuse(slices.Contains(names[:i], r.Name), of+".Name", quote(r.Name), "each resource once in a request"))
		names[i] = r.Name
	}
	return cmp.Or(checkResources(field, names, ".Name"), cmp.Or(errs...))
}

// CheckTTL returns an *InvalidError that names the field unless d is 0, 100 ms to ten years, or Forever.
func CheckTTL(field string, d time.Duration) error {
	if d == 0 {
		return nil
	}
	return checkTTL(field, d)
}

// HoldTTL returns Config.HoldTTL, or its default.
func (l *Steps) HoldTTL() time.Duration { return l.cfg.HoldTTL }
