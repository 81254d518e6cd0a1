package run

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"go.temporal.io/sdk/workflow"
)

// past tells, in a run that was made by a reset, which part of its history it has from the run before it: what was
// locked there was locked in the name of that run.
//
// The SDK tells nobody when its replay passes the point of the reset. But there it seeds the named streams of random
// numbers anew, by the new run's ID, and replays that on every replay; so a stream that gives the first number of that
// seed is beyond the point. A stream of our own disturbs nobody else's numbers.
type past struct {
	// lasts says that the point has not been passed; it is never set in a run that was not reset.
	lasts  bool
	stream workflow.WorkflowRandomStream
	// first is what the stream gives first once it is passed.
	first uint64
	// original is the run that was reset, or which the one that was reset goes back to.
	original string
}

// pastStream names the stream, and seedVersion is how the SDK begins what it makes a seed from. If it ever changed, a run that
// was reset would claim to hold nothing, and each of its steps would take its locks as if it were the first.
const (
	pastStream  = "lockstep.past"
	seedVersion = "temporal.sdk.random.v1"
)

func newPast(ctx workflow.Context) past {
	info := workflow.GetInfo(ctx)
	own := info.WorkflowExecution.RunID
	if info.OriginalRunID == "" || info.OriginalRunID == own {
		return past{}
	}
	var first [8]byte
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(seedVersion + "\x00" + own + "\x00" + pastStream))).Read(first[:]) // never fails
	return past{
		lasts: true, stream: workflow.GetRandomStream(ctx, pastStream), first: binary.LittleEndian.Uint64(first[:]), original: info.OriginalRunID,
	}
}

// ends tells once that the point has been passed since the last call.
func (p *past) ends() bool {
	if !p.lasts || p.stream.Uint64() != p.first {
		return false
	}
	p.lasts = false
	return true
}

// look notices a reset. From there on the run locks in its own name: it holds nothing, and the next step of each
// scope asks for all that the scope held.
func (s *State) look() {
	if !s.past.ends() {
		return
	}
	s.former = []string{s.past.original}
	if s.lockRun != "" && s.lockRun != s.past.original {
		s.former = append(s.former, s.lockRun)
	}
	s.lockRun = ""
	for _, c := range s.open {
		for _, name := range c.held {
			c.lacks.add(name)
		}
		c.held = nil
	}
}
