package sagalocks

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Locks are the locks that a context asks for; see workflows.Locks.
type Locks struct {
	Resources []lockcore.Resource
	// Scope is one of the protocol's scopes, or empty for the default of its place.
	Scope   string
	TTL     time.Duration
	HoldTTL time.Duration
	Owner   protocol.Owner
	MaxWait time.Duration
	Try     bool
}

// Refuse returns an error for what only workflow code can refuse: a name that JSON would change, and a negative wait.
func (l *Locks) Refuse() error {
	for i, r := range l.Resources {
		if !utf8.ValidString(r.Name) {
			return Invalid(fmt.Sprintf("Locks.Resources[%d].Name", i), fmt.Sprintf("%q", protocol.Cut(r.Name, 64)), "1 to 512 bytes of valid UTF-8 without NUL")
		}
	}
	if l.MaxWait < 0 {
		return Invalid("Locks.MaxWait", l.MaxWait.String(), "0 (as long as it takes), or more")
	}
	return nil
}

// Invalid is the error of a call that is refused before anything is scheduled.
func Invalid(field, value, bound string) error {
	return protocol.NewWaitError(&lockcore.InvalidError{Field: field, Value: value, Bound: bound}, true)
}

// with adds what an inner context asks for: one request for each resource, with the stronger mode and the longer scope. The
// other options are those of the inner one, if it sets them.
func (l *Locks) with(inner *Locks) *Locks {
	sum := *l
	sum.Resources = slices.Clone(l.Resources)
	for _, r := range inner.Resources {
		i := slices.IndexFunc(sum.Resources, func(own lockcore.Resource) bool { return own.Name == r.Name })
		if i < 0 {
			sum.Resources = append(sum.Resources, r)
			continue
		}
		sum.Resources[i] = protocol.Stronger(sum.Resources[i], r)
	}
	sum.Scope = longer(l.Scope, inner.Scope)
	sum.TTL, sum.HoldTTL = cmp.Or(inner.TTL, l.TTL), cmp.Or(inner.HoldTTL, l.HoldTTL)
	sum.Owner, sum.MaxWait = cmp.Or(inner.Owner, l.Owner), cmp.Or(inner.MaxWait, l.MaxWait)
	sum.Try = l.Try || inner.Try
	return &sum
}

// longer is the longer of two scopes. The default of a place is never shorter than the step. An unknown scope wins, so that it
// is refused.
func longer(a, b string) string {
	rank := func(scope string) int {
		return slices.Index([]string{protocol.ScopeSaga, "", protocol.ScopeStep}, scope)
	}
	if rank(a) < rank(b) {
		return a
	}
	return b
}
