package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// compare runs this build and another one alternately, as child processes. In each turn both builds measure each case, one
// right after the other, because the speed of a shared machine changes from minute to minute. In every second turn the
// other build is first.
func compare(ctx context.Context, cfg config, progress io.Writer) (report, error) {
	r := newReport(cfg)
	r.Against, r.Turns = cfg.against, cfg.turns
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	this, other := make([][]caseReport, len(cfg.cases)), make([][]caseReport, len(cfg.cases))
	for turn := range cfg.turns {
		for i, c := range cfg.cases {
			builds := []struct {
				path    string
				results *[]caseReport
			}{{self, &this[i]}, {cfg.against, &other[i]}}
			for n := range builds {
				b := builds[(turn+n)%2]
				result, err := runChild(ctx, cfg, b.path, c)
				if err != nil {
					return r, fmt.Errorf("%s: %s: %w", b.path, c.Name, err)
				}
				*b.results = append(*b.results, result)
			}
			fmt.Fprintf(progress, "turn %d of %d, %s: this build %.1f a second, the other %.1f\n",
				turn+1, cfg.turns, c.Name, this[i][turn].PerSecond, other[i][turn].PerSecond)
		}
	}
	for i, c := range cfg.cases {
		m := medians(this[i])
		r.Cases, r.Other = append(r.Cases, m), append(r.Other, medians(other[i]))
		r.Targets = append(r.Targets, targets(cfg, m)...)
		x := ratio{Name: c.Name, This: m.PerSecond, Other: r.Other[i].PerSecond}
		for turn := range cfg.turns {
			x.EachTurn = append(x.EachTurn, this[i][turn].PerSecond/other[i][turn].PerSecond)
		}
		x.Median = median(x.EachTurn)
		r.Ratios = append(r.Ratios, x)
		r.Targets = append(r.Targets, ratioTargets(cfg, c, x.Median)...)
	}
	return r, nil
}

// runChild lets one build measure one case. If ctx ends, the child is interrupted, and drops its database.
func runChild(ctx context.Context, cfg config, path string, c benchCase) (caseReport, error) {
	args := []string{"--json", "--each", cfg.each.String(), "--write-delay", cfg.writeDelay.String(), "--read-delay", cfg.readDelay.String()}
	if c.Slow {
		args = append(args, "--slow", cfg.slow.String())
	} else {
		args = append(args, "--lockers", strconv.Itoa(c.Lockers))
	}
	child := exec.CommandContext(ctx, path, args...) //nolint:gosec // builds of this command, named by the user
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	child.WaitDelay = cleanup + 5*time.Second
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.Output()
	if err != nil {
		return caseReport{}, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		return caseReport{}, fmt.Errorf("read its report: %w", err)
	}
	if len(r.Cases) != 1 || r.Cases[0].benchCase != c {
		return caseReport{}, fmt.Errorf("its report has other cases than the one asked for: %+v", r.Cases)
	}
	return r.Cases[0], nil
}
