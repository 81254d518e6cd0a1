package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
	"github.com/temporal-lockstep/lockstep/internal/cli/contention/page"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
)

// contentionConfig has the arguments and flags of contention.
type contentionConfig struct {
	paths        []string
	resource     string
	since, until string
	top          int
	json         bool
	html, jaeger string
}

func contentionCommand(s streams) *cobra.Command {
	var cfg contentionConfig
	c := &cobra.Command{
		Use:   "contention [FILE | FOLDER | -]...",
		Short: "Find out from traces who kept whom waiting for locks, how long, and why",
		Long: `Reads traces and reports which locks were waited for, who was at the root of the waiting, which workflow
types waited for which, which holds a dead worker explains, and what to do.

It reads what the file exporter of the OpenTelemetry Collector writes: OTLP's JSON, one batch a line, also
compressed with zstd or as protobuf; and the JSON of Jaeger's query API (/api/traces, or the download in its
UI). Of a folder it reads every *.json and *.jsonl, also with .gz or .zst. Without a name, or for "-", it
reads standard input. Lines that are broken, such as the last one of a process that was killed, and spans
of others are counted and do no harm. It needs no server.

  lockstep contention traces/                        a folder that Go's package tracefile or "lockstep demo" fills
  curl -s "$JAEGER/api/traces?service=payments&limit=1000" | lockstep contention
  lockstep contention --html report.html traces/
  lockstep contention --resource account/ --json traces/ | jq '.conclusion[].text'

Exit status: 0 if there were lock spans; 1 if there were none, or none of the resource or the time, or a file could not be read; 2 for wrong
usage; 130 if it was interrupted.`,
		RunE: func(c *cobra.Command, args []string) error {
			cfg.paths = args
			return cfg.run(c.Context(), s)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.IntVar(&cfg.top, "top", 10, "of each list, how many the table shows")
	f.StringVar(&cfg.resource, "resource", "", "only resources whose names begin so")
	f.StringVar(&cfg.since, "since", "", "only waits and holds that ended later, such as 2026-11-21T15:04:05Z")
	f.StringVar(&cfg.until, "until", "", "only waits and holds that began before")
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	f.StringVar(&cfg.html, "html", "", "also write a web page to this file, which needs no other file and no network")
	f.StringVar(&cfg.jaeger, "jaeger-ui", os.Getenv("LOCKSTEP_JAEGER_UI"), "where the page's links to spans lead, such as http://127.0.0.1:16686 (LOCKSTEP_JAEGER_UI)")
	return c
}

func (cfg *contentionConfig) run(ctx context.Context, s streams) error {
	options, err := cfg.options()
	if err != nil {
		return err
	}
	if len(cfg.paths) == 0 {
		if table.Terminal(s.in) != nil {
			return fmt.Errorf("%w: nothing to read: name files or folders with traces, or pipe traces in", errUsage)
		}
		cfg.paths = []string{"-"}
	}
	spans, err := contention.Read(ctx, cfg.paths, s.in)
	if err != nil {
		return err
	}
	if err := spans.Empty(); err != nil {
		return err
	}
	if err := spans.CheckSelected(options); err != nil {
		return err
	}
	report, err := contention.Analyze(ctx, spans, options)
	if err != nil {
		return err
	}
	if cfg.html != "" {
		if err := page.WriteFile(cfg.html, report, cfg.page()); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
		_ = table.Fprintf(s.err, "wrote %s\n", cfg.html)
	}
	if cfg.json {
		return contention.WriteJSON(table.JSON(s.out), report)
	}
	return contention.WriteTable(s.out, report, cfg.top)
}

func (cfg *contentionConfig) options() (contention.Options, error) {
	o := contention.Options{Resource: cfg.resource}
	if cfg.top < 1 {
		return o, fmt.Errorf("%w: --top is %d: want 1 or more", errUsage, cfg.top)
	}
	for _, t := range []struct {
		flag, value string
		to          *time.Time
	}{{"--since", cfg.since, &o.Since}, {"--until", cfg.until, &o.Until}} {
		if t.value == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.value)
		if err != nil {
			return o, fmt.Errorf("%w: %s is %q: want a time such as 2026-11-21T15:04:05Z", errUsage, t.flag, t.value)
		}
		*t.to = at
	}
	if err := cfg.page().Check(); err != nil { // before anything long
		return o, fmt.Errorf("%w: --jaeger-ui: %w", errUsage, err)
	}
	if !o.Since.IsZero() && !o.Until.IsZero() && o.Until.Before(o.Since) {
		return o, fmt.Errorf("%w: --until is before --since", errUsage)
	}
	return o, nil
}

func (cfg *contentionConfig) page() page.Options {
	return page.Options{Title: strings.Join(cfg.paths, ", "), TraceURL: page.JaegerTraces(cfg.jaeger)}
}
