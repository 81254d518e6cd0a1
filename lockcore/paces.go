package lockcore

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/engine"
)

// paces say how long holds of a resource last, by those that this process has seen end: an average
// that moves by an eighth with each. They are guesses at whether it is worth while to wait for a
// moment. Resources share one by chance, since they are kept by a hash of their names.
type paces struct {
	seed maphash.Seed
	// each is in microseconds; 0 is unknown.
	each [1 << 12]atomic.Int64
}

func newPaces() *paces { return &paces{seed: maphash.MakeSeed()} }

func (p *paces) of(resource string) *atomic.Int64 {
	return &p.each[maphash.String(p.seed, resource)%uint64(len(p.each))]
}

// learn takes in what a write ended.
func (p *paces) learn(d *engine.Document) {
	for i := range d.Last.Ended {
		if e := &d.Last.Ended[i]; e.CreatedAt != nil {
			took, pace := max(1, d.At.Sub(*e.CreatedAt).Microseconds()), p.of(d.ID)
			if old := pace.Load(); old > 0 {
				took = max(1, old+(took-old)/8)
			}
			pace.Store(took)
			return
		}
	}
}

// wait is how long the one at a position in the queue waits if nothing else is known; ok says that
// something is.
func (p *paces) wait(resource string, position int) (wait time.Duration, ok bool) {
	each := p.of(resource).Load()
	return time.Duration(each) * time.Microsecond * time.Duration(position), each > 0
}
