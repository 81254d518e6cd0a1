package update

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// encoder writes a world in a canonical form: times are relative to the server's, and random values of
// versions are numbered in the order of their occurrence. Fields that influence neither the rules nor the
// invariants are omitted.
type encoder struct {
	out      []byte
	now      int
	n        int64
	versions []string
}

var hashSeed = maphash.MakeSeed()

func (w *world) hash(e *encoder) uint64 {
	*e = encoder{out: e.out[:0], now: w.now, versions: e.versions[:0]}
	if w.doc != nil {
		e.n = w.doc.Version.N
	}
	e.num(w.faults, w.ticks)
	if w.set != nil {
		e.policies(w)
	}
	e.doc(w.doc)
	e.num(len(w.old))
	if w.faults > 0 { // only faults read old states
		for _, d := range w.old {
			e.doc(d)
		}
	}
	for _, p := range w.processes {
		e.process(p)
	}
	for i := range w.late {
		l := &w.late[i]
		e.num(100, l.from)
		if l.swap != nil {
			e.version(l.swap.Prev)
			e.doc(l.swap.Next)
		}
		for _, x := range l.extend {
			e.text(x.ID)
			e.time(x.End)
		}
	}
	return maphash.Bytes(hashSeed, e.out)
}

func (e *encoder) num(ns ...int) {
	for _, n := range ns {
		e.out = binary.AppendVarint(e.out, int64(n))
	}
}

func (e *encoder) text(s string) { e.out = append(append(e.out, s...), 0) }

func (e *encoder) flags(bs ...bool) {
	n := 0
	for _, b := range bs {
		n *= 2
		if b {
			n++
		}
	}
	e.num(n)
}

// time writes a time. All times in the distant past are equal.
func (e *encoder) time(t time.Time) {
	switch d := t.Sub(at(e.now)); {
	case d > time.Hour:
		e.num(1000)
	case d < -10*time.Second:
		e.num(-1000)
	default:
		e.num(int(d / time.Second))
	}
}

func (e *encoder) pointer(t *time.Time) {
	if t == nil {
		e.num(2000)
		return
	}
	e.time(*t)
}

func (e *encoder) version(v rules.Version) {
	if v.R == "" {
		e.num(-1)
		return
	}
	i := slices.Index(e.versions, v.R)
	if i < 0 {
		i = len(e.versions)
		e.versions = append(e.versions, v.R)
	}
	e.num(i, int(v.N-e.n))
}

func (e *encoder) fence(f int64) {
	if f != 0 {
		f -= at(e.now).UnixMilli()
	}
	e.num(int(f))
}

func (e *encoder) doc(d *rules.Document) {
	if d == nil {
		e.num(-2)
		return
	}
	e.version(d.Version)
	e.fence(d.Fence)
	e.policy(d.Policy)
	e.text(d.LastMember)
	for i := range d.Entries {
		x := &d.Entries[i]
		e.text(x.ID)
		e.text(x.LockID)
		e.num(int(x.Order), len(x.Part), int(x.Limit), int(x.ClaimTTL), int(x.FirstOrder), int(x.Regained))
		e.text(x.Mode + x.State + x.Member)
		e.fence(x.Fence)
		e.fence(x.FirstFence)
		e.fence(x.LeastFence)
		e.flags(x.CutOff, x.Passed, x.CreatedAt != nil)
		e.time(x.ExpiresAt)
		e.pointer(x.QueuedUntil)
	}
	for i := range d.Waiters {
		x := &d.Waiters[i]
		e.text("w" + x.LockID + x.Mode + x.Member)
		e.num(int(x.Order), int(x.Limit), int(x.ClaimTTL))
		e.flags(x.Ahead, x.Verdict != "")
		e.time(x.ExpiresAt)
		e.time(x.OverdueAt)
	}
	for i := range d.Evidence {
		e.text("e" + d.Evidence[i].LockID + d.Evidence[i].Member)
		e.fence(d.Evidence[i].Fence)
		e.num(int(d.Evidence[i].Number), int(d.Evidence[i].Order))
	}
	for i := range d.Releases {
		e.text("o" + d.Releases[i].LockID)
		e.num(int(d.Releases[i].Order))
	}
	if d.Reserved != nil {
		e.text("r" + d.Reserved.By)
		e.time(d.Reserved.Until)
	}
}

func (e *encoder) moment(n Now) {
	e.time(n.At)
	e.time(n.Sent)
}

func (e *encoder) process(p *process) {
	e.text(p.name)
	e.flags(p.crashed, p.sample.known, p.sample.fast)
	for i := range p.parties {
		e.party(&p.parties[i])
	}
	if p.crashed {
		return
	}
	if p.sample.known {
		e.moment(p.sample.guess(e.now))
	}
	e.num(int(p.can[settle]), int(p.can[withdraw]))
	e.line(p)
	for i := range p.extends {
		x := &p.extends[i]
		e.num(200+x.party, x.found, e.now-x.sent)
		e.flags(x.executed, x.drains, x.swaps == p.line.swaps)
		e.moment(x.guess)
		e.text(x.parts[0].ID)
		e.version(rules.Version{N: e.n, R: x.r})
	}
	for _, r := range p.mustGo {
		e.text(r.id)
	}
	e.num(len(p.mustGo))
	for _, id := range p.never {
		e.text(id)
	}
}

func (e *encoder) party(p *party) {
	for _, n := range p.left {
		e.out = append(e.out, byte(n))
	}
	e.num(int(p.n), int(p.order))
	e.flags(p.busy, p.held, p.downgrading, p.deadlocked)
	if p.held {
		e.text(p.id + p.mode)
		e.fence(p.fence)
		e.num(max(p.until-e.now, 0))
	}
	for _, id := range p.lost {
		e.text(id)
	}
}

func (e *encoder) line(p *process) {
	l := &p.line
	e.flags(l.known, l.fresh, l.debt, l.changed, l.committed)
	e.num(l.conflicts, l.failures, int(l.delay))
	if l.known {
		e.doc(l.doc)
		if l.fresh {
			e.moment(l.at)
		}
	}
	for _, c := range l.calls {
		e.call(p, c)
	}
	e.num(-3)
	for _, c := range l.owed {
		e.op(c.Op)
	}
	if l.sent != nil {
		e.num(300, int(l.sent.Kind), e.now-p.issued)
		if l.sent.Kind == StepSwap {
			e.version(l.sent.Swap.Prev)
			e.doc(l.sent.Swap.Next)
			for i := range l.sent.Replies {
				t := &l.sent.Replies[i]
				e.call(p, t.Call)
				e.text(string(t.Outcome))
				e.time(t.Sent)
				e.time(t.After.At)
			}
		}
	}
}

func (e *encoder) call(p *process, c *Call) {
	if i := slices.IndexFunc(p.notes, func(n note) bool { return n.call == c }); i >= 0 {
		n := &p.notes[i]
		e.num(n.party, int(n.verb))
		e.text(n.id)
		e.flags(n.asked, n.loaded)
	}
	e.op(c.Op)
	e.flags(c.queued, c.asleep, c.unknown, c.arrived < p.line.read)
	e.num(c.failures)
}

func (e *encoder) op(op rules.Op) {
	switch op := op.(type) {
	case rules.Acquire:
		e.text("A" + op.Call)
	case rules.Leave:
		e.text("L" + op.LockID)
		e.num(int(op.Order))
	case rules.TakeBack:
		e.text("G" + op.LockID + op.Call)
		e.num(int(op.Order))
	case rules.Renew:
		e.text("R" + op.LockID)
		e.flags(op.Downgrade)
		e.num(int(op.Order))
	case rules.Release:
		e.text("E" + op.LockID)
		e.num(int(op.Order))
	case rules.Withdraw:
		e.text("W" + op.LockID)
		e.num(int(op.Order))
	case rules.Settle:
		e.text("S")
	}
}
