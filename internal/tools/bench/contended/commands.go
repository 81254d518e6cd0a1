package main

import (
	"context"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/delay"
)

// counts are numbers of commands. They include renewals and the Lockers' background work.
type counts struct {
	// sent are the write commands, and done the write commands that wrote a document. reads are the read commands. failed are commands
	// of any kind that ended in an error.
	sent, done, reads, failed int64
}

func (c counts) minus(o counts) counts {
	return counts{c.sent - o.sent, c.done - o.done, c.reads - o.reads, c.failed - o.failed}
}

// commandCounts counts the commands of all clients of a case.
type commandCounts struct{ sent, done, reads, failed atomic.Int64 }

func (c *commandCounts) load() counts {
	return counts{c.sent.Load(), c.done.Load(), c.reads.Load(), c.failed.Load()}
}

// monitor returns a monitor that counts the commands of one client, and delays their answers.
func (c *commandCounts) monitor(d delay.Delays) *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			switch {
			case delay.IsWrite(e.CommandName):
				c.sent.Add(1)
			case delay.IsRead(e.CommandName):
				c.reads.Add(1)
			}
		},
		Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) {
			if delay.IsWrite(e.CommandName) && wrote(e.Reply) {
				c.done.Add(1)
			}
			d.Hold(ctx, e.CommandName)
		},
		Failed: func(ctx context.Context, e *event.CommandFailedEvent) {
			c.failed.Add(1)
			d.Hold(ctx, e.CommandName)
		},
	}
}

// wrote reports whether the answer of a write command counts at least one document. An update that matches a document and
// leaves it unchanged counts, because a replica set acknowledges it like any other write.
func wrote(reply bson.Raw) bool {
	for _, key := range [][]string{
		{"n"}, {"nModified"}, // update, insert, delete
		{"lastErrorObject", "n"},                                 // findAndModify
		{"nInserted"}, {"nMatched"}, {"nUpserted"}, {"nDeleted"}, // bulkWrite
	} {
		if n, ok := reply.Lookup(key...).AsInt64OK(); ok && n > 0 {
			return true
		}
	}
	value, err := reply.LookupErr("value") // findAndModify
	return err == nil && value.Type != bson.TypeNull
}
