package simulation

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds   = flag.Int("seeds", 0, "how many seeds to play")
	from    = flag.Uint64("from", 1, "the first seed")
	ignored = flag.String("ignore", "", "kinds of violations to pass over")
	times   = flag.Int("times", 1, "how often to play each seed")
	all     = flag.Bool("all", false, "go on after a violation")
)

func TestSimulation(t *testing.T) {
	n := uint64(max(*seeds**times, 0)) // nothing by itself, until the engine's known defects are mended
	var next atomic.Uint64
	var stop atomic.Bool
	var mu sync.Mutex
	byKind := map[string][]uint64{}
	began := time.Now()
	play := func(t *testing.T) {
		for !stop.Load() {
			i := next.Add(1) - 1
			if i >= n {
				return
			}
			seed := *from + i/uint64(*times)
			var v *Violation
			synctest.Test(t, func(*testing.T) { v = Run(seed, strings.Split(*ignored, ",")...) })
			if v == nil {
				continue
			}
			mu.Lock()
			byKind[v.Kind] = append(byKind[v.Kind], seed)
			if len(byKind[v.Kind]) == 1 || !*all {
				t.Error(v)
			}
			mu.Unlock()
			stop.Store(!*all)
		}
	}
	t.Run("seeds", func(t *testing.T) {
		for w := range 2 {
			t.Run(fmt.Sprint(w), func(t *testing.T) { t.Parallel(); play(t) })
		}
	})
	for kind, seeds := range byKind {
		slices.Sort(seeds)
		t.Logf("%-30s %5d seeds, first %v", kind, len(seeds), seeds[:min(len(seeds), 10)])
	}
	t.Logf("%d seeds in %v", n, time.Since(began))
}
