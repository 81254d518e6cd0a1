package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
)

func TestParse_Flags_AreSplitIntoRuns(t *testing.T) {
	t.Parallel()
	for command, want := range map[string][]string{
		"engine abc":                    {"engine --json"},
		"engine abc --rounds 5":         {"engine --json --rounds=5"},
		"contended abc --turns=2":       {"--json --lockers=1", "--json --lockers=3", "--json --lockers=10"},
		"contended abc --slow 300ms":    {"--json --slow=300ms"},
		"contended abc --lockers 7":     {"--json --lockers=7"},
		"hot abc --resources=1,2":       {"hot --json --turns 1 --each 3s --processes=1 --resources=1", "hot --json --turns 1 --each 3s --processes=1 --resources=2", "hot --json --turns 1 --each 3s --processes=3 --resources=1", "hot --json --turns 1 --each 3s --processes=3 --resources=2"},
		"contended abc --x --lockers 1": {"--json --x --lockers=1"},
	} {
		cfg, err := parse(strings.Fields(command))
		require.NoError(t, err, command)
		var runs []string
		for _, args := range cfg.runs() {
			runs = append(runs, strings.Join(args, " "))
		}
		require.Equal(t, want, runs, command)
	}
	for _, wrong := range []string{"", "hot", "scale abc", "hot --turns 3", "engine abc --turns 0", "engine abc --turns"} {
		_, err := parse(strings.Fields(wrong))
		require.Error(t, err, wrong)
	}
	require.Equal(t, "1,3", benchmarks["hot"].lists[0].values, "the defaults are unchanged")
	require.Equal(t, "1,10,200", benchmarks["hot"].lists[1].values, "the defaults are unchanged")
}

// A build that is twice as fast has the ratio 2, for rates and for times, whatever the machine does from turn to turn.
func TestMeasure_TwiceAsFast_HasRatioTwo(t *testing.T) {
	t.Parallel()
	cfg, err := parse([]string{"engine", "abc"})
	require.NoError(t, err)
	var order []int
	var r report
	err = r.measure(t.Context(), cfg, io.Discard, func(build int, _ []string) ([]figure, error) {
		speed := float64(1 + len(order)/3) // of the machine, which is faster in each turn
		order = append(order, build)
		if build == this {
			speed *= 2
		}
		return []figure{{"rate", 10 * speed, false}, {"time", 10 / speed, true}, {[]string{"new", "old"}[build], 1, true}}, nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{this, other, other, other, other, this, other, this, other}, order[:9])
	require.Len(t, order, 27)
	require.Len(t, r.rows, 2, "only figures that both print")
	for _, known := range r.rows {
		require.InDelta(t, 2, measure.Median(known.ratios), 1e-9, known.name)
		require.InDelta(t, 1, measure.Median(known.controls), 1e-9, known.name)
		require.Len(t, known.ratios, 9)
		require.False(t, known.isSlower())
	}
	var text strings.Builder
	require.NoError(t, r.write(&text))
	require.Contains(t, text.String(), "rate")
	require.Contains(t, text.String(), "Medians of 9 turns, and")
}

func TestMeasure_SlowerBuild_IsMarked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ratio  float64
		noise  float64
		slower bool
	}{"Slower": {0.9, 0, true}, "Equal": {0.98, 0, false}, "WithinTheControl": {0.9, 0.5, false}} {
		cfg, err := parse([]string{"engine", "abc"})
		require.NoError(t, err)
		r, n := report{}, 0
		require.NoError(t, r.measure(t.Context(), cfg, io.Discard, func(build int, _ []string) ([]figure, error) {
			n++
			value := 1 + c.noise*float64(n%3)
			if build == this {
				value = c.ratio * (1 + c.noise)
			}
			return []figure{{"rate", value, false}}, nil
		}))
		require.Equal(t, c.slower, r.rows[0].isSlower(), "%s: %+v", name, *r.rows[0])
	}
}

// What was measured before a failure is reported, with the number of turns that were measured.
func TestMeasure_FailureInLaterTurn_KeepsEarlierTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   string
		fails  int // the run of a build that fails
		ratios int // of the first figure
		want   string
	}{
		"between figures of a turn": {"contended abc", 13, 2, "Medians of 2 of 9 turns, of which the last is not complete, and"},
		"in the first run":          {"contended abc", 11, 1, "Medians of 1 of 9 turns, and"},
		"one figure":                {"engine abc", 5, 1, "Medians of 1 of 9 turns, and"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := parse(strings.Fields(c.args))
			require.NoError(t, err)
			r, n, broken := report{}, 0, errors.New("broken")
			err = r.measure(t.Context(), cfg, io.Discard, func(_ int, args []string) ([]figure, error) {
				if n++; n == c.fails {
					return nil, broken
				}
				return []figure{{args[len(args)-1], 1, false}}, nil
			})
			require.ErrorIs(t, err, broken)
			require.Len(t, r.rows[0].ratios, c.ratios)
			require.InDelta(t, 1, measure.Median(r.rows[0].ratios), 1e-9)
			var text strings.Builder
			require.NoError(t, r.write(&text))
			require.Contains(t, text.String(), c.want)
		})
	}
}

// The JSON of each benchmark, as older commits print it.
func TestFigures_EachBenchmark_AreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]figure{
		`{"sections": [{"name": "pairs", "cases": [{"name": "raw", "rounds": 3, "medianMs": 1.5, "ratio": 1}]}],
		  "facts": [{"name": "commands", "value": 20, "unit": "commands"}, {"name": "renewal", "value": 0.1, "unit": "s"}]}`: {
			{"pairs: raw", 1.5, true}, {"in addition: renewal", 100, true}},
		`{"turns": 1, "rows": [{"processes": 1, "resources": 10, "cells": [{"kind": "guard", "perSecond": 42}]}]}`: {
			{"1 processes, 10 resources: guard", 42, false}},
		`{"Results": [{"Name": "10 × 4", "Lockers": 10, "PerSecond": 80, "WaitP50MS": 2, "WaitP99MS": 9}], "Other": null}`: {
			{"10 × 4", 80, false}, {"10 × 4: wait p50", 2, true}, {"10 × 4: wait p99", 9, true}},
	} {
		var p printed
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		require.Equal(t, want, p.figures())
	}
}
