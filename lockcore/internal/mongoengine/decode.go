package mongoengine

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// decode reads an answer to a request of a lock ID. What is not about it is not read, since reading a few hundred
// holders takes longer than a round trip: the records only where it lost, and others' holds only where they may be in
// its way. Claims, and what drains, are always read.
func decode(raw bson.Raw, lockID string) (engine.Document, error) {
	var lean struct {
		ID    string      `bson:"_id"`
		Seq   int64       `bson:"seq"`
		At    time.Time   `bson:"at"`
		Fence int64       `bson:"fence"`
		Held  []bson.Raw  `bson:"held"`
		Last  engine.Last `bson:"last"`
	}
	if err := bson.Unmarshal(raw, &lean); err != nil {
		return engine.Document{}, unreadable(err)
	}
	if aboutOthers(&lean.Last) {
		var d engine.Document
		if err := bson.Unmarshal(raw, &d); err != nil {
			return engine.Document{}, unreadable(err)
		}
		return d, nil
	}
	d := engine.Document{ID: lean.ID, Seq: lean.Seq, At: lean.At, Fence: lean.Fence, Last: lean.Last}
	for _, stored := range lean.Held {
		of, _ := stored.Lookup("lockId").StringValueOK()
		state, _ := stored.Lookup("state").StringValueOK()
		if of != lockID && state != engine.Claimed && state != engine.Draining {
			continue
		}
		var e engine.Entry
		if err := bson.Unmarshal(stored, &e); err != nil {
			return d, unreadable(err)
		}
		d.Held = append(d.Held, e)
	}
	return d, nil
}

// aboutOthers tells whether an answer is about others' holds: those in the way of a request, or of one that was given up.
func aboutOthers(last *engine.Last) bool {
	switch last.Outcome {
	case engine.Granted, engine.Joined, engine.Again:
		return len(last.Gone) > 0
	}
	return true
}

func unreadable(err error) error { return fmt.Errorf("lockstep: read a lock document: %w", err) }
