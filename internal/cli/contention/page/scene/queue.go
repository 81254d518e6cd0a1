package scene

import (
	"fmt"
	"slices"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// acquire grants, or queues.
func (s *stage) acquire(g *saga, step int, granted func(hold int)) {
	q := s.resources[g.wants[step]]
	s.report.Totals.Acquisitions++
	if q.holders < q.room && len(q.waiters) == 0 {
		granted(s.grant(q, g))
		return
	}
	w := &waiter{saga: g, step: step, wait: len(s.report.Waits), granted: granted}
	q.waiters = append(q.waiters, w)
	s.report.Totals.Waited++
	s.report.Waits = append(s.report.Waits, contention.Wait{
		Resource: q.name, LockID: g.lockID(), Owner: g.name, Workflow: g.name, Run: g.run, Mode: q.mode(), Part: fmt.Sprintf("%d/%s", step+1, g.steps[step]),
		Step: g.steps[step], Start: begin.Add(s.now), Position: len(q.waiters), Trace: g.trace, Span: s.id(16), Hold: -1,
	})
	switch s.random.IntN(300) {
	case 0:
		s.after(s.about(60*time.Millisecond), func() { s.leave(q, w, "deadlock") })
	case 1, 2:
		s.after(s.about(90*time.Millisecond), func() { s.leave(q, w, "left") })
	}
}

func (g *saga) lockID() string { return "temporal:main/bank/" + g.name + "/" + g.run }

func (q *queue) mode() string {
	if q.room > 1 {
		return "shared"
	}
	return "exclusive"
}

func (s *stage) grant(q *queue, g *saga) int {
	q.holders++
	q.fence = max(q.fence+1, begin.Add(s.now).UnixMilli())
	s.report.Holds = append(s.report.Holds, contention.Hold{
		Resource: q.name, LockID: g.lockID(), Owner: g.name, Workflow: g.name, Run: g.run, Mode: q.mode(), Fence: q.fence, Start: begin.Add(s.now),
		Host: "worker-1", Trace: g.trace, Span: s.id(16),
	})
	return len(s.report.Holds) - 1
}

// release ends a hold, and grants the heads of the queue while there is room.
func (s *stage) release(hold int, outcome string) {
	h := &s.report.Holds[hold]
	h.End, h.Outcome = begin.Add(s.now), outcome
	i := slices.IndexFunc(s.resources, func(q *queue) bool { return q.name == h.Resource })
	q := s.resources[i]
	q.holders--
	if outcome == "expired" {
		h.ExpiredAt, h.Reason = begin.Add(s.now-s.about(30*time.Millisecond)), "its promise ended, and its room was needed"
		if h.ExpiredAt.Before(h.Start) {
			h.ExpiredAt = h.Start
		}
		if len(q.waiters) > 0 {
			h.EndedBy = q.waiters[0].saga.lockID()
		}
		s.report.Losses = append(s.report.Losses, contention.Loss{
			Hold: hold, Resource: q.name, LockID: h.LockID, Owner: h.Owner, At: h.End, Outcome: outcome, Reason: h.Reason, Trace: h.Trace, Span: h.Span,
		})
	}
	s.handOver(q)
}

// handOver takes a moment, as it does in a database: this much of each wait is unexplained.
func (s *stage) handOver(q *queue) {
	if q.holders >= q.room || len(q.waiters) == 0 {
		return
	}
	w := q.waiters[0]
	q.waiters = q.waiters[1:]
	hold := s.grant(q, w.saga)
	wait := &s.report.Waits[w.wait]
	wait.End, wait.Outcome, wait.Hold = begin.Add(s.now), "granted", hold
	w.granted(hold)
	s.handOver(q)
}

// leave gives a wait up, and with it its saga.
func (s *stage) leave(q *queue, w *waiter, outcome string) {
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	wait := &s.report.Waits[w.wait]
	wait.End, wait.Outcome = begin.Add(s.now), outcome
	if outcome == "deadlock" {
		s.report.Deadlocks = append(s.report.Deadlocks, contention.Deadlock{
			At: wait.End, Victim: w.saga.name, Cycle: w.saga.name + " waits for transfer-0001 waits for " + w.saga.name, Trace: wait.Trace, Span: wait.Span,
		})
	}
	s.end(w.saga, "released")
}
