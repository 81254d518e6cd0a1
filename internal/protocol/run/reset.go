package run

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// past tells which part of its history a run, where it was made by a reset, has from the runs before it: what was
// locked there was locked in their names.
//
// The SDK tells nobody when its replay passes the point of a reset. But there it seeds the named streams of random
// numbers anew, by the new run's ID, and replays that on every replay; so a stream that gives other numbers than those of
// the run before has passed the point. A stream of our own disturbs nobody else's numbers.
//
// Commands may follow from whose part it is only as far as every replay finds out the same: the new run, one that is made
// from that by a further reset, which has another ID, and a replayer, which is not told the run's ID. That is so of a reset
// that ends the part of a known run, and of [past.isOf]. How many resets there were is not: only the run itself sees one that
// follows on the part of a run that is not known. What is known to be held for sagas follows from that, which stands in headers.
type past struct {
	// stream is nil where there is nothing to be found out: in the SDK's test environment, and beyond the last reset.
	stream workflow.WorkflowRandomStream
	// run is whose part of the history it is, and expected gives the numbers that the stream gives there; "" and nil where it
	// is not known.
	run      string
	expected *rand.ChaCha8
	// drawn is how many numbers the stream gave since the last reset, and resets how many there were.
	drawn, resets int
	// original is the run that the first reset was of, and own this one, as far as it is told.
	original, own string
}

// pastStream names the stream, and seedVersion is how the SDK begins what it makes a seed from. It cannot change where
// workflows are to be replayed that have drawn numbers.
const (
	pastStream  = "lockstep.past"
	seedVersion = "temporal.sdk.random.v1"
)

func newPast(ctx workflow.Context) past {
	info := workflow.GetInfo(ctx)
	p := past{run: info.OriginalRunID, original: info.OriginalRunID, own: info.WorkflowExecution.RunID}
	if p.original != "" {
		p.stream, p.expected = workflow.GetRandomStream(ctx, pastStream), numbers(p.original)
	}
	return p
}

// numbers are those of the stream in the part of the history that is a run's.
func numbers(run string) *rand.ChaCha8 {
	return rand.NewChaCha8(sha256.Sum256([]byte(seedVersion + "\x00" + run + "\x00" + pastStream)))
}

// next reads as the SDK's streams do: not all ways to read a source give the same numbers.
func next(source *rand.ChaCha8) uint64 {
	var number [8]byte
	_, _ = source.Read(number[:]) // never fails
	return binary.LittleEndian.Uint64(number[:])
}

// ends tells once that the point of a reset has been passed since the last call. One of these is so:
//  1. the run is where it was;
//  2. its own part begins, which is the last;
//  3. the part begins of a run that was reset in its turn, and whose ID is not known.
func (p *past) ends() bool {
	if p.stream == nil {
		return false
	}
	number := p.stream.Uint64()
	p.drawn++
	known := p.expected != nil
	switch {
	case known && next(p.expected) == number:
		return false
	case next(numbers(p.own)) == number:
		*p = past{run: p.own, resets: p.resets + 1, original: p.original, own: p.own}
		return true
	case known:
		p.run, p.expected, p.drawn = "", nil, 1
		p.resets++
		return true
	default: // one unknown run's part may follow on another's; nothing is known to be held there
		return false
	}
}

// learn hears which run a request was made by that has been answered, where that is not known: from then on the next
// reset is noticed.
func (p *past) learn(run string) {
	if p.stream == nil || p.expected != nil {
		return
	}
	number := p.stream.Uint64()
	p.drawn++
	theirs := numbers(run)
	for range p.drawn {
		if next(theirs) == number {
			p.run, p.expected = run, theirs
			return
		}
	}
}

// look notices a reset. From there on the run locks in its own name: it holds nothing, and the next step of each
// scope asks for all that the scope held.
func (s *State) look() {
	before := s.past.run
	if !s.past.ends() {
		return
	}
	for _, run := range []string{s.past.original, before, s.lockRun} {
		if run != "" {
			s.former.add(run)
		}
	}
	s.lockRun = ""
	for _, c := range s.open {
		for _, name := range c.held {
			if !c.lost.has(name) {
				c.lacks.add(name)
			}
		}
		c.held = slices.Clone(c.lost)
	}
}

// isOf tells whether this part of the history is known to be a run's.
func (p *past) isOf(run string) bool { return p.run == run }

// learn hears in whose name a request was made that has been answered, and tells whether that is the name in which this
// part of the history locks: what the run before a reset has got, it has not.
func (s *State) learn(lockID string) (ours bool) {
	run, err := protocol.ParseLockID(lockID)
	switch {
	case s.past.original == "" || err != nil: // the SDK's test environment, or a mock
		return true
	case s.lockRun != "":
		return run.RunID == s.lockRun
	}
	s.past.learn(run.RunID)
	return s.past.isOf(run.RunID)
}

// stale tells that the step was scheduled by the run before a reset: which of the two it ran in is not known. No command
// may follow from it: see [past].
func (t *Step) stale() bool { return t.resets != t.scope.state.past.resets }
