package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/contention"
)

// analysis is what reading and analysing traces took.
type analysis struct {
	Spans     int     `json:"spans"`
	LockSpans int     `json:"lockSpans"`
	Waits     int     `json:"waits"`
	Holds     int     `json:"holds"`
	Read      float64 `json:"readSeconds"`
	Analyze   float64 `json:"analyzeSeconds"`
	Print     float64 `json:"printSeconds"`
	// Peak is the most memory that the process had, in MiB; 0 where the system does not tell.
	Peak float64 `json:"peakMiB"`
}

func runContention(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench contention", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	asJSON := flags.Bool("json", false, "print JSON")
	spans := flags.Int("spans", 1_000_000, "how many spans, 1000 to 5000000")
	resources := flags.Int("resources", 200, "of how many resources, 1 to 10000")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case *spans < 1000 || *spans > 5_000_000:
		return fmt.Errorf("%w: --spans %d is not from 1000 to 5000000", errUsage, *spans)
	case *resources < 1 || *resources > 10_000:
		return fmt.Errorf("%w: --resources %d is not from 1 to 10000", errUsage, *resources)
	}
	report, err := benchContention(ctx, *spans, *resources)
	if err != nil {
		return err
	}
	return tell(out, report, *asJSON)
}

// benchContention makes traces in a temporary folder, and measures a process of its own that reads them.
func benchContention(ctx context.Context, spans, resources int) (Report, error) {
	dir, err := os.MkdirTemp("", "lockstep-bench")
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	size, err := makeTraces(ctx, filepath.Join(dir, "traces.json"), spans, resources)
	if err != nil {
		return Report{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return Report{}, err
	}
	var out bytes.Buffer
	child := exec.CommandContext(ctx, self, "contention-read", dir) //nolint:gosec // itself
	child.Stdout, child.Stderr = &out, os.Stderr
	if err := child.Run(); err != nil {
		return Report{}, fmt.Errorf("the process that reads: %w", err)
	}
	var a analysis
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		return Report{}, err
	}
	total := a.Read + a.Analyze + a.Print
	return Report{Facts: []FactReport{
		{Name: "traces", Value: float64(size) / (1 << 20), Unit: "MiB"},
		{Name: "spans", Value: float64(a.Spans), Unit: "spans"},
		{Name: "of which of locks", Value: float64(a.LockSpans), Unit: "spans"},
		{Name: fmt.Sprintf("waits, on %d resources", resources), Value: float64(a.Waits), Unit: "waits"},
		{Name: "reading", Value: a.Read, Unit: "s"},
		{Name: "analysis", Value: a.Analyze, Unit: "s"},
		{Name: "table", Value: a.Print, Unit: "s"},
		{Name: "all, for each million spans", Value: total / float64(a.Spans) * 1e6, Unit: "s", Limit: 30},
		{Name: "speed", Value: float64(a.Spans) / total, Unit: "spans/s"},
		{Name: "peak memory", Value: a.Peak, Unit: "MiB", Limit: 1536},
	}}, nil
}

// readTraces is the process that is measured.
func readTraces(ctx context.Context, dir string, out io.Writer) error {
	var a analysis
	begun := time.Now()
	lap := func() float64 {
		took := time.Since(begun).Seconds()
		begun = time.Now()
		return took
	}
	spans, err := contention.Read(ctx, []string{dir}, nil)
	if err != nil {
		return err
	}
	a.Read = lap()
	report := contention.Analyze(spans, contention.Options{})
	a.Analyze = lap()
	if err := contention.WriteTable(io.Discard, report, 10); err != nil {
		return err
	}
	a.Print = lap()
	a.Spans, a.LockSpans, a.Waits, a.Holds = report.Read.Spans, report.Read.LockSpans, len(report.Waits), len(report.Holds)
	a.Peak = peakMemory()
	return json.NewEncoder(out).Encode(a)
}

// peakMemory is that of this process in MiB, as Linux tells it; 0 elsewhere.
func peakMemory() float64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kB, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			if err == nil {
				return kB / 1024
			}
		}
	}
	return 0
}
