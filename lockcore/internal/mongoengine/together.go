package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// update is one of an update command's. Its pipeline fails if the resource is not simply free, and
// then the server does nothing of what comes after it.
type update struct {
	Document bson.D   `bson:"q"`
	Pipeline pipeline `bson:"u"`
	Insert   bool     `bson:"upsert"`
}

// AcquireAll sends one command, which has the short form for each resource, and a read of what was
// granted. It sends none for less than two.
func (e *Engine) AcquireAll(ctx context.Context, ops []engine.Acquire) ([]engine.Document, error) {
	updates, err := e.updatesOf(ops)
	if err != nil || len(updates) < 2 {
		return nil, err
	}
	if err := e.check(ctx); err != nil {
		return nil, err
	}
	// By its own name the driver would repeat the command when its answer is lost, and a server that
	// remembers what it did of it would go on after that, however much later.
	command := bson.D{
		{Key: "update", Value: e.coll.Name()}, {Key: "updates", Value: updates}, {Key: "ordered", Value: true},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}},
	}
	answer, err := e.coll.Database().RunCommand(ctx, command).Raw()
	var stopped mongo.WriteException
	if err != nil && (!errors.As(err, &stopped) || stopped.WriteConcernError != nil) {
		return nil, fmt.Errorf("lockstep: take several resources: %w", err)
	}
	n, _ := answer.Lookup("n").AsInt64OK()
	if n == 0 {
		return nil, nil
	}
	return e.granted(ctx, ops[:n])
}

// updatesOf are the updates of those of a request's resources that come before the first that is
// likely to be held, and that need no more than the short form.
func (e *Engine) updatesOf(ops []engine.Acquire) ([]update, error) {
	var updates []update
	for i := range ops {
		values, kind, short := e.shortOf(&ops[i])
		if !short {
			break
		}
		kind.orFails = true
		pipeline, err := pipelineOf(append(values, v("zero", 0)), kind)
		if err != nil {
			return nil, err
		}
		updates = append(updates, update{doc(v("_id", ops[i].Resource)), pipeline, true})
	}
	return updates, nil
}

// errEnded says that of several parts that were granted one is not there any more, and one after it
// is. It leaves open what the others are, so that each is asked for alone.
var errEnded = errors.New("lockstep: of several resources that were granted, one was released by force meanwhile")

// granted reads the documents of what was just granted. Others may have written them since, and the
// last may have been reached too late.
func (e *Engine) granted(ctx context.Context, ops []engine.Acquire) ([]engine.Document, error) {
	at, names := map[string]int{}, make([]string, len(ops))
	for i := range ops {
		names[i] = ops[i].Resource
		at[ops[i].Resource] = i
	}
	found, err := e.Read(ctx, names...)
	if err != nil {
		return nil, err
	}
	docs := make([]engine.Document, len(ops))
	for _, d := range found {
		op := &ops[at[d.ID]]
		began := slices.IndexFunc(d.Entries, func(e engine.Entry) bool { return e.LockID == op.LockID && e.CreatedAt != nil })
		if began < 0 || d.Part(op.LockID, op.Part, op.Order) == nil {
			continue
		}
		d.At, d.Last = *d.Entries[began].CreatedAt, engine.Last{Outcome: engine.Granted}
		docs[at[d.ID]] = d
		e.taken.of(d.ID).Store(true)
	}
	gone := func(d engine.Document) bool { return d.ID == "" }
	if i := slices.IndexFunc(docs, gone); i >= 0 {
		for _, d := range docs[i:] {
			if !gone(d) {
				return nil, errEnded
			}
		}
		docs = docs[:i]
	}
	return docs, nil
}
