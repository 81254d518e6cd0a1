package update

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
	"github.com/temporal-lockstep/lockstep/internal/engine/store"
)

// mostMerged is the number of parts from which a statement takes in no further extensions.
const mostMerged = 20

// merged is a statement for one document that several calls of Extend share.
type merged struct {
	parts []store.Extension
	// done is closed when the result is known.
	done chan struct{}
	rest map[string]bool
	err  error
}

// Extend raises the ends of entries. It returns the documents for which that is not known, and whether it can
// be repeated, as the store does.
//
// Of one document, a process has one statement under way: extensions that arrive meanwhile share the next
// one. Otherwise the renewals of a busy document would fill the server's queue for it, and the pool of
// connections, and what decides would wait behind them.
func (ls *Lines) Extend(ctx context.Context, parts []store.Extension) (rest map[string]bool, err error) {
	several := slices.ContainsFunc(parts, func(p store.Extension) bool { return p.Resource != parts[0].Resource })
	if several || len(parts) == 0 || ctx.Err() != nil {
		return ls.extend(ctx, parts)
	}
	name := parts[0].Resource
	ls.mu.Lock()
	queue, running := ls.extensions[name]
	if !running {
		ls.extensions[name] = nil
		ls.mu.Unlock()
		defer func() { go ls.extendInTurn(name) }()
		return ls.extend(ctx, parts)
	}
	if n := len(queue); n == 0 || len(queue[n-1].parts) >= mostMerged {
		queue = append(queue, &merged{done: make(chan struct{})})
	}
	m := queue[len(queue)-1]
	m.parts = append(m.parts, parts...)
	ls.extensions[name] = queue
	ls.mu.Unlock()
	select {
	case <-m.done:
		return m.rest, m.err
	case <-ctx.Done():
		return map[string]bool{name: false}, context.Cause(ctx)
	}
}

// extendInTurn sends the extensions of one document that have arrived during the one before, until there are none.
func (ls *Lines) extendInTurn(name string) {
	for {
		ls.mu.Lock()
		queue := ls.extensions[name]
		if len(queue) == 0 {
			delete(ls.extensions, name)
			ls.mu.Unlock()
			return
		}
		m := queue[0]
		ls.extensions[name] = queue[1:]
		ls.mu.Unlock()
		ctx, cancel := ls.clock.WithTimeout(ls.closed, CommandTimeout)
		m.rest, m.err = ls.extend(ctx, m.parts)
		cancel()
		close(m.done)
	}
}

// extend sends extensions, and updates or drops the cached documents.
func (ls *Lines) extend(ctx context.Context, parts []store.Extension) (rest map[string]bool, err error) {
	ends := map[string]map[string]time.Time{}
	for _, p := range parts {
		if ends[p.Resource] == nil {
			ends[p.Resource] = map[string]time.Time{}
		}
		ends[p.Resource][p.ID] = rules.Later(ends[p.Resource][p.ID], p.End)
	}
	before, swaps := map[string]*activeLine{}, map[string]uint64{}
	for name := range ends {
		if e := ls.find(name); e != nil {
			e.mu.Lock()
			before[name], swaps[name] = e, e.line.swaps
			e.mu.Unlock()
		}
	}
	rest, r, err := ls.store.Extend(ctx, parts)
	for name, ends := range ends {
		e := ls.find(name)
		repeated, unknown := rest[name]
		if e == nil || repeated { // a read under way must not be dropped for it, and a stale cache does no harm
			continue
		}
		if !unknown && before[name] == e {
			ls.handle(e, Extended{ends, r, swaps[name]})
		} else {
			ls.handle(e, Outdated{})
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotSent) {
		ls.server.forget()
	}
	return rest, err
}
