package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/cli/contention/page"
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
	// Printed are the bytes of the JSON and the page.
	Printed int64 `json:"printedBytes"`
	// Peak is the most memory that the process had, in MiB; 0 if the system does not tell.
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

const (
	// queued is how many wait at a time when all want one resource.
	queued = 1000
	// room is how many may hold a semaphore at a time, and crowded how many wait for it.
	room, crowded = 50, 500
)

// benchContention measures sagas that queue for many resources, such as all want one, and such as all want one semaphore.
func benchContention(ctx context.Context, spans, resources int) (Report, error) {
	var report Report
	for _, c := range []struct {
		name  string
		write func(*traces, int)
	}{
		{fmt.Sprintf("%d resources", resources), spread(resources)},
		{fmt.Sprintf("1 resource, %d wait", queued), hot(queued)},
		{fmt.Sprintf("1 semaphore of %d, %d wait", room, crowded), pool(room, crowded)},
	} {
		facts, err := benchTraces(ctx, c.name, spans, c.write)
		if err != nil {
			return report, err
		}
		report.Facts = append(report.Facts, facts...)
	}
	return report, nil
}

// benchTraces makes traces in a temporary folder, and measures processes of their own that read them.
func benchTraces(ctx context.Context, name string, spans int, write func(*traces, int)) ([]FactReport, error) {
	dir, err := os.MkdirTemp("", "lockstep-bench")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	size, err := makeTraces(ctx, filepath.Join(dir, "traces.json"), spans, write)
	if err != nil {
		return nil, err
	}
	table, err := startReader(ctx, "contention-read", dir)
	if err != nil {
		return nil, err
	}
	all, err := startReader(ctx, "contention-read-all", dir)
	if err != nil {
		return nil, err
	}
	fact := func(what string, value float64, unit string, limit float64) FactReport {
		return FactReport{Name: name + ": " + what, Value: value, Unit: unit, Limit: limit}
	}
	facts := []FactReport{
		fact("traces", float64(size)/(1<<20), "MiB", 0),
		fact("spans", float64(table.Spans), "spans", 0),
		fact("of which of locks", float64(table.LockSpans), "spans", 0),
		fact("waits", float64(table.Waits), "waits", 0),
		fact("reading", table.Read, "s", 0),
		fact("analysis", table.Analyze, "s", 0),
		fact("table", table.Print, "s", 0),
		fact("JSON and page", all.Print, "s", 0),
		fact("JSON and page", float64(all.Printed)/(1<<20), "MiB", 0),
	}
	for _, c := range []struct {
		what string
		analysis
	}{{"with a table", table}, {"with JSON and page", all}} {
		total := c.Read + c.Analyze + c.Print
		facts = append(facts,
			fact(c.what+", each million spans", total/float64(c.Spans)*1e6, "s", 30),
			fact(c.what+", speed", float64(c.Spans)/total, "spans/s", 0),
			fact(c.what+", peak memory", c.Peak, "MiB", 1536))
	}
	return facts, nil
}

// startReader runs this program again, to read what is in a folder.
func startReader(ctx context.Context, command, dir string) (a analysis, err error) {
	self, err := os.Executable()
	if err != nil {
		return a, err
	}
	var out bytes.Buffer
	child := exec.CommandContext(ctx, self, command, dir) //nolint:gosec // itself
	child.Stdout, child.Stderr = &out, os.Stderr
	if err := child.Run(); err != nil {
		return a, fmt.Errorf("the process that reads: %w", err)
	}
	return a, json.Unmarshal(out.Bytes(), &a)
}

// readTraces is the process that is measured. It does what `lockstep contention` does, with --json and --html if all is true.
func readTraces(ctx context.Context, dir string, all bool, out io.Writer) error {
	contention.SpareMemory()
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
	report, err := contention.Analyze(ctx, spans, contention.Options{})
	if err != nil {
		return err
	}
	a.Analyze = lap()
	var printed written
	if all {
		err = errors.Join(page.Write(&printed, report, page.Options{}), contention.WriteJSON(&printed, report))
	} else {
		err = contention.WriteTable(&printed, report, 10)
	}
	if err != nil {
		return err
	}
	a.Print, a.Printed = lap(), int64(printed)
	a.Spans, a.LockSpans, a.Waits, a.Holds = report.Read.Spans, report.Read.LockSpans, len(report.Waits), len(report.Holds)
	a.Peak = peakMemory()
	return json.NewEncoder(out).Encode(a)
}

// written counts bytes, and drops them.
type written int64

func (n *written) Write(p []byte) (int, error) {
	*n += written(len(p))
	return len(p), nil
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
