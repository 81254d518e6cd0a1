package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

const (
	// renewingLockers is the number of Lockers that renew, and leasesOfEach the number of leases of each.
	renewingLockers, leasesOfEach = 10, 5
	// mostUnderWay bounds the renewals of one Locker that have no answer yet. A renewal beyond it is left out.
	mostUnderWay = 100
)

// renewalsRow is the result of renewals of one document at a rate. Meanwhile another party tries, acquires and releases a shared lock
// on it again and again.
type renewalsRow struct {
	// Wanted is the rate of renewals, and PerSecond that of renewals that succeeded. Each is a statement of its own.
	Wanted    int     `json:"wanted"`
	PerSecond float64 `json:"perSecond"`
	// RenewP99MS is the time of a renewal, and Failed the number of renewals that failed.
	RenewP99MS float64 `json:"renewP99Ms"`
	Failed     int64   `json:"failed"`
	// Tries is the number of times the other party has acquired and released, and TryP50MS, TryP99MS and TryMostMS the time that took.
	Tries     int     `json:"tries"`
	TryP50MS  float64 `json:"tryP50Ms"`
	TryP99MS  float64 `json:"tryP99Ms"`
	TryMostMS float64 `json:"tryMostMs"`
}

func (b *scaleBench) growRenewals(ctx context.Context, rates []int) error {
	for _, rate := range rates {
		row, err := b.measureRenewals(ctx, rate)
		if err != nil {
			return fmt.Errorf("%d renewals a second: %w", rate, err)
		}
		b.Renewals = append(b.Renewals, row)
	}
	return nil
}

func (b *scaleBench) measureRenewals(ctx context.Context, rate int) (*renewalsRow, error) {
	f, err := b.newFleet(ctx, renewingLockers+1, fmt.Sprintf("renewals_%d", rate))
	if err != nil {
		return nil, err
	}
	defer f.close(ctx)
	shared := func(lockID string) lockcore.StepRequest {
		return lockcore.StepRequest{Caller: lockcore.Caller{LockID: lockID}, Resources: []lockcore.Resource{lockcore.Shared(resourceName(0))}}
	}
	running, stop := context.WithTimeout(ctx, b.each)
	defer stop()
	var g errgroup.Group
	all := make([]*renewer, renewingLockers)
	for i := range all {
		r := &renewer{locker: f.lockers[i].Steps()}
		for n := range leasesOfEach {
			leases, err := r.locker.TryEnter(ctx, shared(fmt.Sprintf("holder/%d/%d", i, n)))
			if err != nil {
				return nil, err
			}
			r.leases = append(r.leases, leases...)
		}
		all[i] = r
		g.Go(func() error {
			r.run(running, time.Duration(renewingLockers)*time.Second/time.Duration(rate))
			return nil
		})
	}
	var tries []time.Duration
	trying, cancel := context.WithTimeout(ctx, b.each+30*time.Second) // the last try may take longer than the load
	defer cancel()
	for n := 0; running.Err() == nil; n++ {
		d, err := timed(func() error {
			s, err := f.lockers[renewingLockers].Steps().TryAcquire(trying, shared(fmt.Sprint("other/", n)))
			if err != nil {
				return err
			}
			return s.Release(trying)
		})
		if err != nil {
			return nil, errors.Join(err, g.Wait())
		}
		tries = append(tries, d)
	}
	_ = g.Wait()
	row := &renewalsRow{Wanted: rate, Tries: len(tries)}
	row.TryP50MS, row.TryP99MS, row.TryMostMS = measure.Percentile(tries, 50), measure.Percentile(tries, 99), measure.Percentile(tries, 100)
	var took []time.Duration
	for _, r := range all {
		took = append(took, r.took...)
		row.Failed += r.failed.Load()
	}
	row.PerSecond, row.RenewP99MS = float64(len(took))/b.each.Seconds(), measure.Percentile(took, 99)
	return row, nil
}

// renewer renews the leases of one Locker in turn, each with a call of its own.
type renewer struct {
	locker   *lockcore.Steps
	failed   atomic.Int64
	underWay atomic.Int64

	mu     sync.Mutex
	leases []lockcore.Lease
	took   []time.Duration
}

// run begins a renewal every so often until ctx ends, and waits for all.
func (r *renewer) run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if r.underWay.Load() < mostUnderWay {
			r.underWay.Add(1)
			all.Go(func() { r.renew(context.WithoutCancel(ctx), n%len(r.leases)) })
		}
	}
}

func (r *renewer) renew(ctx context.Context, i int) {
	defer r.underWay.Add(-1)
	r.mu.Lock()
	lease := r.leases[i]
	r.mu.Unlock()
	var renewed []lockcore.Lease
	d, err := timed(func() (err error) { renewed, err = r.locker.Renew(ctx, lease); return err })
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failed.Add(1)
		return
	}
	r.leases[i], r.took = renewed[0], append(r.took, d)
}

func (b *scaleBench) printRenewals(w io.Writer) {
	if len(b.Renewals) > 0 {
		fmt.Fprintf(w, "\nrenewals of one document by %d Lockers, while another acquires and releases\n", renewingLockers)
		fmt.Fprintln(w, "wanted a second\trenewed a second\trenewal p99 ms\tfailed\tacquired\tacquire + release p50 ms\tp99 ms\tmost ms\t")
	}
	for _, r := range b.Renewals {
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%d\t%d\t%.1f\t%.1f\t%.1f\t\n", r.Wanted, r.PerSecond, r.RenewP99MS, r.Failed, r.Tries, r.TryP50MS, r.TryP99MS, r.TryMostMS)
	}
}
