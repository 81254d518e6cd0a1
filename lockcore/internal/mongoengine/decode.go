package mongoengine

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// decode reads an answer to a request of a lock ID. Others' holds are read only if they may be in
// its way, since reading a few hundred takes longer than a round trip. Claims, and what drains, are
// always read.
func decode(raw bson.Raw, lockID string) (d engine.Document, seen sight, err error) {
	var lean struct {
		ID    string      `bson:"_id"`
		Seq   int64       `bson:"seq"`
		At    time.Time   `bson:"at"`
		Fence int64       `bson:"fence"`
		Held  []bson.Raw  `bson:"held"`
		Last  engine.Last `bson:"last"`
		Attn  []string    `bson:"attn"`

		Waiters []engine.Waiter `bson:"waiters"`
	}
	if err := bson.Unmarshal(raw, &lean); err != nil {
		return d, seen, unreadable(err)
	}
	seen = sight{
		taken:   len(lean.Held) > 0 || len(lean.Attn) > 0,
		awaited: slices.ContainsFunc(lean.Attn, func(what string) bool { return what != engine.StateKept }),
	}
	if lean.Last.Outcome != passed && aboutOthers(&lean.Last, lean.At) {
		err := bson.Unmarshal(raw, &d)
		return d, seen, unreadable(err)
	}
	d = engine.Document{ID: lean.ID, Seq: lean.Seq, At: lean.At, Fence: lean.Fence, Last: lean.Last, Waiters: lean.Waiters}
	for _, stored := range lean.Held {
		of, _ := stored.Lookup("lockId").StringValueOK()
		state, _ := stored.Lookup("state").StringValueOK()
		if of != lockID && state != engine.StateClaimed && state != engine.StateDraining {
			continue
		}
		var e engine.Entry
		if err := bson.Unmarshal(stored, &e); err != nil {
			return d, seen, unreadable(err)
		}
		d.Entries = append(d.Entries, e)
	}
	return d, seen, nil
}

// sight is what an answer says of whether short forms will do next.
type sight struct{ taken, awaited bool }

func aboutOthers(last *engine.Last, at time.Time) bool {
	switch last.Outcome {
	case engine.Granted, engine.Joined, engine.Again:
		return len(last.Gone(at)) > 0
	}
	return true
}

func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lockstep: read a lock document: %w", err)
}
