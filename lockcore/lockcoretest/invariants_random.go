package lockcoretest

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// randomRetention is how long the evidence of random operations is kept.
const randomRetention = 2 * time.Minute

// Random makes an operation of one of a few parties on a resource. What pick returns, for a number of possibilities,
// decides everything, so that who picks can repeat and shrink. Orders grow with step, and late ones are among them. What
// stands in the document is named often.
func Random(pick func(possibilities int) int, d rules.Document, resource string, step int) any {
	policy := rules.Policy{ClaimTTL: 20_000, Retention: randomRetention.Milliseconds()}
	lockID := []string{"$owner", "a.b", "c", "$$NOW"}[pick(4)]
	label := labelOf(pick, lockID)
	part := []string{"", "$p"}[pick(2)]
	order := int64(1 + step/4 + pick(4))
	switch kind := pick(16); kind {
	default:
		op := rules.Acquire{Policy: policy, Resource: resource, LockID: lockID, Label: label, Part: part, Order: order}
		if !d.At.IsZero() {
			op.Issued = d.At.Add(-[]time.Duration{0, time.Hour, 0, 0, 0, 0}[pick(6)])
		}
		return RandomAcquire(pick, op)
	case 6, 7:
		return rules.Renew{Policy: policy, Resource: resource, LockID: lockID, Part: part, Order: order, Downgrade: pick(3) == 1, TTL: []int64{0, 0, 5_000}[pick(3)]}
	case 8, 9:
		return rules.Leave{Policy: policy, Resource: resource, LockID: lockID, Label: label, Part: part, Order: order, Undo: pick(2) == 1, Waiting: pick(4) == 1}
	case 10, 11:
		op := rules.Release{Policy: policy, Resource: resource, LockID: lockID, Label: label, Order: order}
		switch pick(4) {
		case 1, 2:
			op.Leaving = &part
		}
		if label != "" && pick(2) == 1 {
			op.Used, op.Leaving = order, nil
		}
		return op
	case 14, 15:
		return endHold(pick, d, rules.Release{Policy: policy, Resource: resource, LockID: lockID, Label: label, Order: order})
	case 12, 13:
		return rules.Withdraw{Policy: policy, Resource: resource, LockID: lockID, Part: part, Order: order, Reason: "$because"}
	}
}

// labelOf is the label of an operation of a lock ID. Those of workflows always have one.
func labelOf(pick func(int) int, lockID string) string {
	if lockID != "$owner" && lockID != "c" {
		return ""
	}
	return []string{"$run1", "$run2", "$run1"}[pick(3)]
}

// endHold is a release of one hold by its first fence, usually of one that stands or drains.
func endHold(pick func(int) int, d rules.Document, op rules.Release) rules.Release {
	op.FirstFence = max(1, d.Fence)
	if len(d.Entries) > 0 && pick(6) > 0 {
		e := d.Entries[pick(len(d.Entries))]
		op.LockID, op.FirstFence = e.LockID, max(1, e.FirstFence)
		switch op.Label = e.Label; pick(6) {
		case 1:
			op.Label = ""
		case 2:
			op.Label = labelOf(pick, e.LockID)
		}
		if pick(2) == 1 {
			op.Leaving, op.Order = &e.Part, e.Order
		}
	}
	if op.Force = pick(2) == 1; op.Force {
		op.Label = ""
		op.Leaving, op.Reason, op.Now = nil, "$because", pick(2) == 1
	}
	return op
}

// RandomAcquire completes a request.
func RandomAcquire(pick func(int) int, op rules.Acquire) rules.Acquire {
	seldom := func() bool { return pick(6) == 1 }
	op.TTL = []int64{10_000, 30_000, 0}[pick(3)]
	op.HoldTTL = op.TTL
	if op.TTL > 0 && pick(2) == 1 {
		op.HoldTTL = 60_000
	}
	op.Mode = []string{rules.Exclusive, rules.Shared, rules.Shared}[pick(3)]
	if op.Mode == rules.Shared {
		op.Limit = []int64{0, 0, 1, 2}[pick(4)]
	}
	op.Persist, op.Queue = pick(2) == 1, pick(3) > 0
	op.WaiterTTL, op.MaxWaiters = 40_000, 3
	op.HeardIn = []int64{0, 2_000, 10_000}[pick(3)]
	op.Held, op.Reacquire, op.NewFence, op.Refresh = seldom(), seldom(), seldom(), seldom()
	op.Converts = []int64{0, 0, 0, op.Order - 1}[pick(4)]
	op.Owner = []string{op.LockID, "$saga"}[pick(2)]
	op.Host, op.Comment, op.Trace = "$host", "$$ROOT", "$trace"
	if op.Label != "" {
		randomRun(pick, &op)
	}
	return op
}

// randomRun completes a request with a run label.
func randomRun(pick func(int) int, op *rules.Acquire) {
	op.TakeOver = []string{"", "$run1", "$run2"}[pick(3)]
	if pick(6) == 1 {
		op.Undo = []string{map[string]string{"": "$p", "$p": ""}[op.Part]} // the other part
	}
	if op.LockID == "c" && pick(2) == 1 {
		op.Within = "$owner"
	}
	op.HandOver = op.Persist && op.Refresh
}

// Batch makes renewals of all parts of a document that may be renewed and that pick does not leave out, and seldom of one
// that is not there.
func Batch(pick func(possibilities int) int, d rules.Document) []rules.Renew {
	var ops []rules.Renew
	for _, e := range d.Entries {
		if e.State == rules.StateRunning && pick(3) > 0 {
			ops = append(ops, rules.Renew{Resource: d.ID, LockID: e.LockID, Part: e.Part, Order: e.Order})
		}
	}
	if pick(4) == 1 {
		ops = append(ops, rules.Renew{Resource: d.ID, LockID: "$gone", Part: "$p", Order: 1})
	}
	return ops
}

// Next is what the specification makes of a document by an operation of any kind.
func Next(before rules.Document, op any, now time.Time) rules.Document {
	switch op := op.(type) {
	case rules.Acquire:
		return Acquire(before, op, now)
	case rules.Renew:
		return Renew(before, op, now)
	case rules.Leave:
		return Leave(before, op, now)
	case rules.Release:
		return Release(before, op, now)
	case rules.Withdraw:
		return Withdraw(before, op, now)
	case []rules.Renew:
		after, _ := Extend(before, op, now)
		return after
	}
	panic(fmt.Sprintf("lockcoretest: %T is no operation", op))
}

// Apply sends an operation of any kind on one resource to an engine.
func Apply(ctx context.Context, eng rules.Engine, op any) (rules.Document, error) {
	switch op := op.(type) {
	case rules.Acquire:
		return eng.Acquire(ctx, op)
	case rules.Renew:
		return eng.Renew(ctx, op)
	case rules.Leave:
		return eng.Leave(ctx, op)
	case rules.Release:
		return eng.Release(ctx, op)
	case rules.Withdraw:
		return eng.Withdraw(ctx, op)
	}
	panic(fmt.Sprintf("lockcoretest: %T is no operation", op))
}

func byName(a, b rules.Entry) int {
	return cmp.Or(strings.Compare(a.LockID, b.LockID), strings.Compare(a.Part, b.Part), strings.Compare(a.State, b.State), cmp.Compare(a.Order, b.Order))
}
