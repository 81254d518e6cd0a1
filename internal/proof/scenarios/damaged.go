package scenarios

import (
	"reflect"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// Damaged returns a document that no operation writes, with entries of unknown states, claims and waiters
// without times, and negative orders and limits. All choices come from pick. A process that reads such a
// document must not panic.
func Damaged(pick func(possibilities int) int, now time.Time) *rules.Document {
	d := &rules.Document{}
	damage(reflect.ValueOf(d).Elem(), "", pick, now)
	d.ID, d.At = "r", now
	return d
}

// damage draws a value of a field, and of all fields inside it.
func damage(v reflect.Value, field string, pick func(possibilities int) int, now time.Time) {
	if t, ok := v.Addr().Interface().(*time.Time); ok {
		*t = []time.Time{{}, rules.LongAgo, now.Add(-time.Hour), now, now.Add(time.Minute), rules.Never}[pick(6)]
		return
	}
	switch v.Kind() {
	case reflect.String:
		texts := []string{"", "w", "a", "\x00", "w/1"}
		switch field {
		case "Mode":
			texts = []string{rules.Exclusive, rules.Shared, rules.Pool, "", "other"}
		case "State":
			texts = []string{rules.StateClaimed, rules.StateDraining, rules.StateRunning, rules.StateKept, "", "z"}
		}
		v.SetString(texts[pick(len(texts))])
	case reflect.Int64:
		v.SetInt([]int64{-1 << 63, -1, 0, 1, 2, 5_000, 1<<63 - 1}[pick(7)])
	case reflect.Bool:
		v.SetBool(pick(2) == 1)
	case reflect.Pointer:
		if pick(2) == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			damage(v.Elem(), field, pick, now)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), pick(6), 5))
		for i := range v.Len() {
			damage(v.Index(i), field, pick, now)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			damage(v.Field(i), v.Type().Field(i).Name, pick, now)
		}
	default:
		panic("a field of the type " + v.Type().String())
	}
}

// AllOps returns one operation of each kind, of a party that may be in a damaged document.
func AllOps(pick func(possibilities int) int) []rules.Op {
	text := func() string { return []string{"w", "a", "w/1", ""}[pick(4)] }
	lockID, run, part, order := text(), text(), text(), int64(pick(3))-1
	acquire := rules.Acquire{
		Resource: "r", Call: text(), Caller: rules.Caller{LockID: lockID, Run: run, Part: part, Order: order, Saga: text(), Within: text()}, TakeOver: text(),
		Mode: []string{rules.Exclusive, rules.Shared, rules.Pool}[pick(3)], Limit: int64(pick(3)), TTL: int64(pick(2)) * 1000,
		Keep: pick(2) == 1, HoldOnly: pick(3) == 1, HeldSince: int64(pick(2)), Reacquire: pick(2) == 1, Queue: pick(3) > 0, Refresh: pick(3) == 1,
		Upgrades: text(), WaiterTTL: 1000, MaxWaiters: int64(pick(3)), Priority: int64(pick(6)),
	}
	acquire.HoldOnly = acquire.HoldOnly && acquire.Keep
	return []rules.Op{
		acquire,
		rules.Renew{Resource: "r", Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Downgrade: pick(2) == 1, TTL: int64(pick(2))},
		rules.Leave{Resource: "r", Caller: rules.Caller{LockID: lockID, Run: run, Part: part, Order: order}, Keep: pick(2) == 1},
		rules.TakeBack{Resource: "r", Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Call: text()},
		rules.Release{Resource: "r", LockID: lockID, Run: run, Order: order, Committed: true},
		rules.Release{Resource: "r", LockID: lockID, FirstFence: 1, Force: pick(2) == 1, Now: pick(2) == 1, Leaving: &part},
		rules.Withdraw{Resource: "r", Caller: rules.Caller{LockID: lockID, Part: part, Order: order}, Reason: "because"},
		rules.Verify{Resource: "r", LockID: lockID, Run: run, TakeOver: text(), Order: order, LostSince: rules.LongAgo},
		rules.Raise{Resource: "r", LockID: lockID, Run: run, TakeOver: text(), Saga: text(), Order: order},
		rules.Promote{Resource: "r", LockID: lockID},
		rules.Settle{Resource: "r"},
	}
}
