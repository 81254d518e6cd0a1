package mongoengine

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// kind is what the text of a pipeline depends on, but for the stage that sets its values.
type kind interface{ stages() []bson.D }

type (
	renewKind    struct{ downgrade, newTTL bool }
	leaveKind    struct{ undo, waiting, labelled bool }
	releaseKind  struct{ named, leaving, force, now, labelled, used bool }
	withdrawKind struct{}
)

// Acquire sends one command, or two if others have the resource, and one more to learn of a loss.
func (e *Engine) Acquire(ctx context.Context, op engine.Acquire) (engine.Document, error) {
	if d, done, err := e.acquireShort(ctx, &op); done {
		return d, err
	}
	return e.withRecords(ctx)(e.apply(ctx, op.Resource, op.LockID, acquireValues(&op), kindOf(&op)))
}

// Renew sends one command, and one more to learn of a loss.
func (e *Engine) Renew(ctx context.Context, op engine.Renew) (engine.Document, error) {
	values := append(values(op.LockID, op.Part, op.Order, op.Policy), v("ttl", op.TTL))
	return e.withRecords(ctx)(e.apply(ctx, op.Resource, op.LockID, values, renewKind{downgrade: op.Downgrade, newTTL: op.TTL > 0}))
}

// withRecords reads the records for an answer that is about them. Other answers leave them out.
func (e *Engine) withRecords(ctx context.Context) func(engine.Document, error) (engine.Document, error) {
	return func(d engine.Document, err error) (engine.Document, error) {
		if err != nil || (d.Last.Outcome != engine.Lost && d.Last.Outcome != engine.Superseded) {
			return d, err
		}
		now, err := e.Read(ctx, d.ID)
		if len(now) == 1 {
			d.Released, d.Evicted, d.Undone = now[0].Released, now[0].Evicted, now[0].Undone
		}
		return d, err
	}
}

// Leave sends one command, or two if others have the resource or wait for it.
func (e *Engine) Leave(ctx context.Context, op engine.Leave) (engine.Document, error) {
	record := engine.Released{LockID: op.LockID, Label: op.Label, Part: &op.Part, Order: op.Order, Reason: op.Reason}
	if d, done, err := e.leaveShort(ctx, &op, record); done {
		return d, err
	}
	values := append(values(op.LockID, op.Part, op.Order, op.Policy), v("cut", engine.CutOff(op.LockID)), v("rec", record))
	return e.apply(ctx, op.Resource, op.LockID, values, leaveKind{op.Undo, op.Waiting, op.Label != ""})
}

// Release sends one command, or two if others have the resource or wait for it.
func (e *Engine) Release(ctx context.Context, op engine.Release) (engine.Document, error) {
	part, record := "", engine.Released{LockID: op.LockID, Label: op.Label, Order: op.Order, Reason: op.Reason}
	if op.Leaving != nil {
		part = *op.Leaving
	}
	if d, done, err := e.releaseShort(ctx, &op, record); done {
		return d, err
	}
	values := append(values(op.LockID, part, op.Order, op.Policy),
		v("label", op.Label), v("cut", engine.CutOff(op.LockID)), v("first", op.FirstFence), v("used", op.Used), v("rec", record))
	kind := releaseKind{used: op.Used > 0, named: op.FirstFence > 0, leaving: op.Leaving != nil, force: op.Force, now: op.Now, labelled: op.Label != ""}
	return e.apply(ctx, op.Resource, op.LockID, values, kind)
}

// Withdraw sends one command.
func (e *Engine) Withdraw(ctx context.Context, op engine.Withdraw) (engine.Document, error) {
	return e.apply(ctx, op.Resource, op.LockID, append(values(op.LockID, op.Part, op.Order, op.Policy), v("reason", op.Reason)), withdrawKind{})
}

func values(lockID, part string, order int64, policy engine.Policy) bson.D {
	return bson.D{
		{Key: "id", Value: lockID}, {Key: "part", Value: part}, {Key: "ord", Value: order}, {Key: "claim", Value: policy.ClaimTTL}, {Key: "mem", Value: policy.Memory()},
	}
}

// pipeline is a marshalled array of stages: what a command costs its client is mostly marshalling.
type pipeline []byte

// MarshalBSONValue returns the array as it is.
func (p pipeline) MarshalBSONValue() (byte, []byte, error) { return byte(bson.TypeArray), p, nil }

// texts keeps the stages of each kind of pipeline after the first, as elements of an array.
var texts sync.Map

// pipelineOf is a pipeline of its kind, after the stage that sets its values.
func pipelineOf(values bson.D, kind kind) (pipeline, error) {
	known, ok := texts.Load(kind)
	if !ok {
		made, err := elements(kind.stages())
		if err != nil {
			return nil, err
		}
		known, _ = texts.LoadOrStore(kind, made)
	}
	rest := known.([]byte)
	first, err := bson.Marshal(load(values))
	if err != nil {
		return nil, fmt.Errorf("lockstep: marshal a pipeline's values: %w", err)
	}
	// An array is a document with the indexes as keys: its length, the elements, and a zero byte.
	out := make([]byte, 4, 4+3+len(first)+len(rest)+1)
	out = append(out, byte(bson.TypeEmbeddedDocument), '0', 0)
	out = append(append(append(out, first...), rest...), 0)
	binary.LittleEndian.PutUint32(out, uint32(len(out))) //nolint:gosec // some kilobytes
	return out, nil
}

func elements(stages []bson.D) ([]byte, error) {
	var out []byte
	for i, stage := range stages {
		raw, err := bson.Marshal(stage)
		if err != nil {
			return nil, fmt.Errorf("lockstep: marshal a pipeline: %w", err)
		}
		out = append(append(out, byte(bson.TypeEmbeddedDocument)), strconv.Itoa(i+1)...)
		out = append(append(out, 0), raw...)
	}
	return out, nil
}
