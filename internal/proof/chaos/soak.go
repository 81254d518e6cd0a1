package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"time"

	sdkworker "go.temporal.io/sdk/worker"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// A soak plays one plan of faults for long, and samples what each process uses. A process must not use more and more: see
// soak_report.go.

var errGrows = errors.New("a process uses more and more")

// gauges are the values of a Sample. Growth up to least is never an error: caches, pools and garbage collection vary by that much.
var gauges = []struct {
	name  string
	least float64
}{
	{"resident memory, MiB", 4},
	{"live heap, MiB", 1}, // what the latest garbage collection found in use
	{"goroutines", 5},
	{"file descriptors", 5},
}

// Sample has the memory, goroutines and file descriptors of a process at some time, in the order of gauges.
type Sample struct {
	At      int64
	Process string
	Slot    int
	Values  [4]float64
}

// sampleEvery is the interval of the samples.
const sampleEvery = time.Second

// cachedWorkflows bounds the workflows that a worker of a soak keeps in memory, each with its goroutines. The SDK keeps up to 10,000,
// including workflows that another worker has finished, so the goroutines of a worker grow with each restart of Temporal.
const cachedWorkflows = 4

// sampleSelf writes samples of this process to a file in the folder c.Samples, until the process ends.
func sampleSelf(c *Child) error {
	log, err := harness.OpenLog(c.Samples, c.Name, func(s *Sample) { s.At, s.Process, s.Slot = now(), c.Name, c.Slot })
	if err != nil {
		return err
	}
	sdkworker.SetStickyWorkflowCacheSize(cachedWorkflows)
	go func() {
		for range time.Tick(sampleEvery) {
			log.Write(&Sample{Values: usage()})
		}
	}()
	return nil
}

// usage returns what this process uses. It panics without /proc, which the faults need too.
func usage() [4]float64 {
	const mib = 1 << 20
	var size, resident float64
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &resident)
	}
	files, filesErr := os.ReadDir("/proc/self/fd")
	if err = errors.Join(err, filesErr); err != nil {
		panic(err)
	}
	runtime := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(runtime)
	return [4]float64{
		resident * float64(os.Getpagesize()) / mib, float64(runtime[0].Value.Uint64()) / mib,
		float64(runtime[1].Value.Uint64()), float64(len(files) - 1), // without that of the list itself
	}
}

// NewSoakPlan returns the faults of a soak, in the order of time: one of a random kind every few seconds. Only the last client
// and the last worker are killed, so that the other processes live from the beginning to the end.
func NewSoakPlan(seed uint64, long time.Duration) (faults []Fault) {
	r := rand.New(rand.NewPCG(seed, 0x50a4)) //nolint:gosec // it must be the same each time
	for at := span(r, 3000, 6000); at < long-lastFault; at += span(r, 8000, 20000) {
		f := newFault(r, kinds[r.IntN(len(kinds))], at)
		if f.Kind == Kill {
			f.Slot = []int{clients - 1, slots - 1}[r.IntN(2)]
		}
		faults = append(faults, f)
	}
	return faults
}

// playSoak plays a soak. It prints the load of each window of time and the verdict, and writes soak.svg.
func (o settings) playSoak(ctx context.Context, srv *servers, exe, work string) error {
	samples := filepath.Join(work, "samples")
	if err := os.MkdirAll(samples, 0o700); err != nil {
		return err
	}
	plan := slices.DeleteFunc(NewSoakPlan(o.seed, o.soak), func(f Fault) bool { return !srv.can(f.Kind) })
	records, err := Play(ctx, Setup{Seed: o.seed, Long: o.soak, Plan: plan, Samples: samples, Policies: asLogged}, srv, exe, work)
	if err != nil {
		return fmt.Errorf("soak: %w (logs in %s)", err, work)
	}
	story := read(records)
	o.long = o.soak
	violated := o.judge(story, o.seed, work)
	all, err := harness.ReadLogs(samples, func(s *Sample) int64 { return s.At })
	if err != nil {
		return err
	}
	s := newSoak(story, all, o.soak)
	fmt.Print(s.table())
	verdict, flat := s.verdict()
	fmt.Print(verdict)
	if !flat {
		violated = errors.Join(violated, errGrows)
	}
	chart := filepath.Join(work, "soak.svg")
	if err := os.WriteFile(chart, []byte(s.svg()), 0o600); err != nil {
		return err
	}
	fmt.Printf("chart: %s; samples: %s\n", chart, samples)
	return violated
}
