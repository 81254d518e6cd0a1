package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// kinds of workflows whose throughput is compared.
const (
	unguarded = iota // one step that does nothing
	raw              // one that writes twice to a document of its own: what two round trips cost by themselves
	guarded          // one that is guarded by a resource of its own
	kinds
)

// throughput runs workflows of the three kinds in turn, and compares each turn with its neighbours: between minutes a machine
// differs more than the kinds do.
func (b *temporalBench) throughput(ctx context.Context) ([]FactReport, error) {
	const turns = 10
	var perSecond [kinds][]float64
	var ofUnguarded, ofRaw []float64
	for turn := range turns + 1 {
		var now [kinds]float64
		for kind := range kinds {
			var err error
			if now[kind], err = b.perSecond(ctx, kind); err != nil {
				return nil, err
			}
		}
		if turn == 0 { // warms up
			continue
		}
		for kind, n := range now {
			perSecond[kind] = append(perSecond[kind], n)
		}
		ofUnguarded = append(ofUnguarded, now[guarded]/now[unguarded])
		ofRaw = append(ofRaw, now[guarded]/now[raw])
	}
	return []FactReport{
		{Name: "unguarded workflows, 20 at a time, median", Value: median(perSecond[unguarded]), Unit: "per second"},
		{Name: "with a step of two raw $inc", Value: median(perSecond[raw]), Unit: "per second"},
		{Name: "with a guarded step", Value: median(perSecond[guarded]), Unit: "per second"},
		{Name: "guarded through raw, median of the turns", Value: median(ofRaw), Unit: "times"},
		{Name: "guarded through unguarded", Value: median(ofUnguarded), Unit: "times", Least: 0.9},
	}, nil
}

// perSecond keeps 20 workflows under way until as many as asked for have ended. Those that are left then are not counted: now
// and then the last task of a load stays two seconds with Temporal's server before a poll gets it, whatever the task.
func (b *temporalBench) perSecond(ctx context.Context, kind int) (float64, error) {
	const atATime = 20
	each := int64(max(b.cfg.rounds/3, 2*atATime))
	var begun, ended atomic.Int64
	var took time.Duration
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range atATime {
		g.Go(func() error {
			for ended.Load() < each {
				if _, err := b.run(ctx, stepOf(kind, begun.Add(1))); err != nil {
					return err
				}
				if ended.Add(1) == each {
					took = time.Since(start)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(each) / took.Seconds(), err
}

func stepOf(kind int, n int64) step {
	switch id := fmt.Sprintf("throughput/%d", n); kind {
	case raw:
		return step{Raw: id}
	case guarded:
		return step{Resource: id}
	}
	return step{}
}
