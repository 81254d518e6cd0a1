package lockcore

import (
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"sync/atomic"
	"time"
)

// contention is when resources were last seen to be asked for by more than one, by a hash of their
// names.
type contention [1 << 12]atomic.Int64 // Unix milliseconds

func (c *contention) of(resource string) *atomic.Int64 {
	return &c[crc32.ChecksumIEEE([]byte(resource))%uint32(len(c))]
}

func (c *contention) saw(resource string) { c.of(resource).Store(time.Now().UnixMilli()) }

// lately reports whether one of a request's resources was contended not long ago.
func (c *contention) lately(req *Request) bool {
	for _, res := range req.Resources {
		if time.Since(time.UnixMilli(c.of(res.Name).Load())) < contendedFor {
			return true
		}
	}
	return false
}

// contendedFor is how long a resource that was contended is taken to be.
const contendedFor = 10 * time.Second

// together asks for several resources at once, if it is likely that nothing is in the way on any. It
// returns the leases before the first that is busy, in the order of names: the caller goes on from
// there, one after the other. With an *OtherRunError it returns all leases.
//
// Nothing waits in a queue while more is held than what comes before: what was got beyond is given
// back first. It cannot be had by the same Order again, so then the request queues and ends.
func (l *Locker) together(ctx context.Context, req *Request, queue bool) ([]Lease, error) {
	n := len(req.Resources)
	if n == 1 || len(req.Undo) > 0 || l.contention.lately(req) {
		return nil, nil
	}
	leases, errs, asked := make([]Lease, n), make([]error, n), make([]Request, n)
	inParallel(n, func(i int) {
		asked[i] = *req
		leases[i], errs[i] = l.ask(ctx, &asked[i], l.enterOp(req, req.Resources[i], false), nil)
	})
	first := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if first < 0 {
		return leases, nil
	}
	var beyond []Lease
	for i := first + 1; i < n; i++ {
		switch {
		case errs[i] == nil:
			beyond = append(beyond, leases[i])
		case errors.Is(errs[i], ErrUnknownOutcome):
			beyond = append(beyond, asked[i].leaseOn(req.Resources[i].Name))
		}
	}
	at, err := req.Resources[first], errs[first]
	*req, leases = asked[first], leases[:first]
	switch isBusy := errors.Is(err, ErrBusy); {
	case errors.Is(err, ErrOtherRun):
		return append(leases, beyond...), err
	case isBusy && len(beyond) == 0:
		return leases, nil
	case isBusy && queue:
		l.giveUp(ctx, beyond...)
		var lease Lease
		if lease, err = l.ask(ctx, req, l.enterOp(req, at, true), nil); err == nil { // it has just become free
			leases, err = append(leases, lease), errs[first]
		}
	default:
		l.giveUp(ctx, beyond...)
	}
	l.giveBack(ctx, req, at, leases, err, queue, queue)
	return nil, err
}
