package lockcore

import (
	"context"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// together is what one command has asked for of a request's resources. Why it can do no harm is said
// in docs/adr/0012-several-resources.md.
type together struct {
	// rest are to be asked for with the first.
	rest []engine.Acquire
	// open are those that were asked for so, and since then not alone: what the answer said of them,
	// or nil if it is not known whether they were granted.
	open map[string]*granted
	// issued is when, by the server's clock.
	issued time.Time
}

// granted is an answer, and when its command was sent.
type granted struct {
	document engine.Document
	sent     time.Time
}

// send asks for one resource, and for as many of the rest as are simply free. It reads the answer if
// that came with another's.
func (t *together) send(ctx context.Context, eng engine.Engine, op engine.Acquire) (engine.Document, error) {
	if len(t.rest) == 0 {
		return eng.Acquire(ctx, op)
	}
	ops := []engine.Acquire{op}
	for _, next := range t.rest {
		next.Issued, next.Trace = op.Issued, op.Trace
		ops = append(ops, next)
	}
	t.rest, t.open, t.issued = nil, map[string]*granted{}, op.Issued
	for i := range ops {
		t.open[ops[i].Resource] = nil
	}
	sent := time.Now()
	docs, err := eng.AcquireAll(ctx, ops)
	if err != nil {
		return engine.Document{}, err
	}
	clear(t.open)
	if len(docs) == 0 {
		return eng.Acquire(ctx, op)
	}
	for i := range docs[1:] {
		t.open[ops[i+1].Resource] = &granted{docs[i+1], sent}
	}
	return docs[0], nil
}

// asked is when the resource was asked for with another, if that is still open.
func (t *together) asked(resource string) time.Time {
	if _, open := t.open[resource]; open {
		return t.issued
	}
	return time.Time{}
}
