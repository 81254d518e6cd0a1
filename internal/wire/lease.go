package wire

import (
	"context"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Lease is a [lockcore.Lease] whose duration other languages can read.
type Lease struct {
	lockcore.Lease
	Left Duration `json:"left"`
}

// Leases returns lockcore's leases as they travel.
func Leases(in []lockcore.Lease) []Lease {
	out := make([]Lease, 0, len(in))
	for _, l := range in {
		out = append(out, Lease{Lease: l, Left: Duration(l.Left)})
	}
	return out
}

// CoreLeases returns leases that have travelled as lockcore's. They are not trusted until they were renewed.
func CoreLeases(in []Lease) []lockcore.Lease {
	out := make([]lockcore.Lease, 0, len(in))
	for _, l := range in {
		core := l.Lease
		core.Left = time.Duration(l.Left)
		out = append(out, core)
	}
	return out
}

// Holder is a [lockcore.Holder] whose durations other languages can read.
type Holder struct {
	lockcore.Holder
	// State is holding, claimed (granted, and not confirmed yet) or draining (cut off).
	State lockcore.State `json:"state,omitempty"`
	// ExpiresIn is the time until it expires, unless it renews.
	ExpiresIn Duration `json:"expiresIn,omitempty"`
	// Silent is the time since the last sign of life.
	Silent Duration `json:"silent,omitempty"`
	// HoldTTL is that of a kept hold.
	HoldTTL Duration `json:"holdTtl,omitempty"`
}

func holderOf(h lockcore.Holder) Holder {
	return Holder{
		Holder: h, State: h.State, ExpiresIn: Duration(h.ExpiresIn), Silent: Duration(h.Silent), HoldTTL: Duration(h.HoldTTL),
	}
}

func (h Holder) core() lockcore.Holder {
	core := h.Holder
	core.State, core.ExpiresIn = h.State, time.Duration(h.ExpiresIn)
	core.Silent, core.HoldTTL = time.Duration(h.Silent), time.Duration(h.HoldTTL)
	return core
}

type leasesKey struct{}

// ContextWithLeases returns the context of a running step, whose leases the function returns as they are at the time of the call.
func ContextWithLeases(ctx context.Context, leases func() []lockcore.Lease) context.Context {
	return context.WithValue(ctx, leasesKey{}, leases)
}

// LeasesFrom returns the current leases of the step whose context ctx is. ok is false if the step is not guarded.
func LeasesFrom(ctx context.Context) (leases []lockcore.Lease, ok bool) {
	f, ok := ctx.Value(leasesKey{}).(func() []lockcore.Lease)
	if !ok {
		return nil, false
	}
	return f(), true
}
