package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soakOf returns a soak of 30 minutes with six processes. The gauges of one at a second are those of values, and those of the others are flat.
func soakOf(values func(second int) [4]float64) *soak {
	records := append([]Record{{What: Total}, {What: Probe, Began: 1e9, At: 1e9 + 4*ms, Result: done}, {What: Closed, At: 2e9}}, fault(0, Fault{Kind: Cut}, 3000, 4000)...)
	var samples []Sample
	for second := range 1800 {
		at := int64(second) * int64(time.Second)
		for slot := range slots - 2 {
			samples = append(samples, Sample{At: at, Process: fmt.Sprintf("s%d-1", slot), Slot: slot, Values: [4]float64{30, 5, 40, 20}})
			if slot == 1 {
				samples[len(samples)-1].Values = values(second)
			}
		}
		if second > 900 { // a process that was born late is not judged
			samples = append(samples, Sample{At: at, Process: "s7-9", Slot: 7, Values: [4]float64{float64(second), 5, 40, 20}})
		}
	}
	return newSoak(read(records), samples, 30*time.Minute)
}

func TestVerdict_Gauges_GrowthIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values func(second int) [4]float64
		grows  []string
	}{
		"flat":                      {func(s int) [4]float64 { return [4]float64{30 + float64(s%7), 5, 40 + float64(s%3), 20} }, nil},
		"it grows in the beginning": {func(s int) [4]float64 { return [4]float64{30 + min(float64(s)/30, 20), 5, 40, 20} }, nil},
		"an outage at the end": {func(s int) [4]float64 {
			if s > 1650 {
				return [4]float64{30, 5, 90, 2}
			}
			return [4]float64{30, 5, 40, 20}
		}, nil},
		"a goroutine a minute":     {func(s int) [4]float64 { return [4]float64{30, 5, 40 + float64(s)/60, 20} }, []string{"goroutines"}},
		"memory, 10 kB a second":   {func(s int) [4]float64 { return [4]float64{30 + float64(s)/100, 5 + float64(s)/100, 40, 20} }, []string{"resident memory", "live heap"}},
		"file descriptors, slowly": {func(s int) [4]float64 { return [4]float64{30, 5, 40, 20 + float64(s)/120} }, []string{"file descriptors"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := soakOf(c.values)
			require.Equal(t, []string{"s0-1", "s1-1", "s2-1", "s3-1", "s4-1", "s5-1"}, s.whole)
			text, flat := s.verdict()
			require.Equal(t, len(c.grows) == 0, flat, text)
			for _, gauge := range gauges {
				name, _, _ := strings.Cut(gauge.name, ",")
				require.Equal(t, slices.Contains(c.grows, name), strings.Contains(text, "GROWS "+name), text)
			}
		})
	}
}

func TestVerdict_NoProcessLivedAllTheTime_IsNotFlat(t *testing.T) {
	t.Parallel()
	_, flat := newSoak(read([]Record{{What: Total}}), []Sample{{At: int64(time.Minute), Process: "s0-1"}}, 30*time.Minute).verdict()
	require.False(t, flat)
}

func TestSoak_TableAndChart_HaveTheLoad(t *testing.T) {
	t.Parallel()
	s := soakOf(func(int) [4]float64 { return [4]float64{30, 5, 40, 20} })
	require.Regexp(t, `\n +0 +0\.0 +0\.02 +4\.0 +4\.0\n +60 +0\.0`, s.table())
	chart := s.svg()
	require.Equal(t, 4*(slots-2)+3, strings.Count(chart, "<polyline"))
	for decoder := xml.NewDecoder(strings.NewReader(chart)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}

func TestUsage_ThisProcess_IsPlausible(t *testing.T) {
	t.Parallel()
	for i, value := range usage() {
		if gauges[i].name != "live heap, MiB" { // which is 0 until the first garbage collection
			require.Positive(t, value, gauges[i].name)
		}
	}
}

func TestNewSoakPlan_Faults_AreOfAllKindsAndKillOnlyTheLast(t *testing.T) {
	t.Parallel()
	plan := NewSoakPlan(1, 30*time.Minute)
	require.Equal(t, plan, NewSoakPlan(1, 30*time.Minute))
	seen := map[Kind]bool{}
	for _, f := range plan {
		seen[f.Kind] = true
		if f.Kind == Kill {
			require.Contains(t, []int{clients - 1, slots - 1}, f.Slot)
		}
	}
	require.Len(t, seen, len(kinds))
}
