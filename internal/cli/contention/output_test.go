package contention

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everything is a scene with a case for each part of a report.
func everything() *scene {
	s := threeInARow()
	// A worker is killed; its hold expires and is evicted.
	s.step("account/3", "dead", "1/Debit", 30, 100, 0, telemetry.OutcomeGranted)
	dead := s.hold("account/3", "dead", 30, 100, 4000, attrs{telemetry.Outcome: telemetry.OutcomeExpired, telemetry.EndedBy: lockID("next")})
	dead.events = []sceneEvent{{telemetry.EventExpired, 3000, nil}}
	s.wait("account/3", "next", 31, 1000, 4000, attrs{telemetry.Part: "1/Debit", telemetry.Position: 1}, heldBy("dead", 30))
	s.step("account/3", "next", "1/Debit", 31, 4000, 4300, telemetry.OutcomeGranted)
	s.hold("account/3", "next", 31, 4000, 4310, nil)
	// Readers and a writer.
	shared := attrs{telemetry.Mode: "shared"}
	s.hold("rates", "reader1", 40, 0, 900, shared)
	s.hold("rates", "reader2", 41, 0, 1200, shared)
	s.wait("rates", "writer", 42, 600, 1200, nil, heldBy("reader1", 40), heldBy("reader2", 41))
	s.hold("rates", "writer", 42, 1200, 1300, nil)
	// A deadlock.
	s.hold("p", "X", 50, 0, 1000, nil)
	s.hold("q", "Y", 51, 0, 700, nil)
	s.wait("q", "X", 52, 200, 700, nil, heldBy("Y", 51))
	s.hold("q", "X", 52, 700, 1000, nil)
	s.wait("p", "Y", 0, 300, 600, attrs{telemetry.Outcome: telemetry.OutcomeDeadlock}, heldBy("X", 50))
	s.add(telemetry.SpanDeadlock, 590, 600, about("p", "Y", attrs{telemetry.Outcome: telemetry.OutcomeOK, telemetry.Cycle: "Y waits for X on p, X waits for Y on q"}))
	// A revoked hold, and the step that found it lost.
	s.hold("account/4", "stuck", 60, 0, 2000, attrs{telemetry.Outcome: telemetry.OutcomeRevoked, telemetry.Reason: "released by hand"})
	s.add(telemetry.SpanRenew, 2100, 2101, about("account/4", "stuck", attrs{telemetry.Outcome: telemetry.OutcomeLost}))
	// A hold whose end was not read, and a name that could change a terminal.
	s.step("account/5", "still", "1/Debit", 70, 100, 0, telemetry.OutcomeGranted)
	s.hold("evil\x1b[2J\n<name>", "owner\tof it", 80, 0, 10, nil)
	s.wait("evil\x1b[2J\n<name>", "waits\u202e for it", 81, 2, 10, nil)
	// Spans of others.
	s.add("RunActivity:Debit", 0, 10, nil)
	s.types("Transfer", "A", "B", "X", "Y", "dead", "next")
	s.types("Audit", "C")
	s.add(telemetry.SpanHold, 0, 10, attrs{telemetry.Resource: "r"})
	return s
}

func TestOutputs_EqualGoldenFiles(t *testing.T) {
	t.Parallel()
	file := append(everything().otlp(t, 7), `{"resourceSpans":[{"scop`...)
	r := reportOf(t, file, Options{})
	for i := range r.Read.Problems { // the folder differs each time
		r.Read.Problems[i] = r.Read.Problems[i][strings.LastIndex(r.Read.Problems[i], "traces.json"):]
	}
	var table, out bytes.Buffer
	require.NoError(t, WriteTable(&table, r, 10))
	require.NoError(t, WriteJSON(&out, r))
	golden(t, "table.txt", table.Bytes())
	golden(t, "report.golden.json", out.Bytes())

	for line := range strings.Lines(table.String()) {
		require.LessOrEqual(t, len([]rune(line)), 101, line)
	}
	var again Report
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&again))
	require.Equal(t, *r, again)
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "if it is meant to change: go test ./internal/cli/contention -run Golden -update")
}

func TestWriteTable_TopAndNothingSelected_AreReported(t *testing.T) {
	t.Parallel()
	var one, none strings.Builder
	require.NoError(t, WriteTable(&one, everything().report(t), 1))
	require.Contains(t, one.String(), "(the first 1 of 7)")
	require.Equal(t, 1, strings.Count(one.String(), "why:"))
	require.NoError(t, WriteTable(&none, reportOf(t, threeInARow().otlp(t, 10), Options{Resource: "none/"}), 10))
	require.Contains(t, none.String(), "  none: nothing that was read is of a resource that begins so")
}

func TestWrite_FailingWriter_ReturnsItsError(t *testing.T) {
	t.Parallel()
	r := everything().report(t)
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, r, 10))
	for _, room := range []int{0, 100, b.Len() - 1} {
		require.ErrorIs(t, WriteTable(&full{room}, r, 10), errFull, "%d", room)
		require.ErrorIs(t, WriteJSON(&full{room}, r), errFull, "%d", room)
	}
}

var errFull = errors.New("full")

// full is a writer with room for some bytes.
type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestText_Formats(t *testing.T) {
	t.Parallel()
	for s, want := range map[float64]string{
		0: "0 s", 0.00001: "10 µs", 0.0012: "1.2 ms", 0.0124: "12 ms", 0.9994: "999 ms", 0.9996: "1.0 s", 4: "4.0 s", 99.94: "99.9 s",
		99.96: "1m40s", 119.7: "2m00s", 3599: "59m59s", 5999.4: "99m59s", 7199: "2h00m", 8000: "2h13m", 90_000: "25h00m",
	} {
		require.Equal(t, want, Seconds(s))
	}
	require.Equal(t, "1,234,567", thousands(1234567))
	require.Equal(t, "999", thousands(999))
	require.Equal(t, "over 99 %", percent(0.999))
	require.Equal(t, "under 1 %", percent(0.001))
	require.Equal(t, "a…f", printable("abcdef", 3))
	const namespace = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11"
	require.Equal(t, "order-7 waits for activity import-7 of type Import on account/1",
		shortCycle(namespace+"/order-7 waits for %standalone/"+namespace+"/import-7/Import/r1 on account/1"))
}

func TestStepName_FromPart(t *testing.T) {
	t.Parallel()
	for part, want := range map[string]string{"3/Debit": "Debit", "12/a/b": "a/b", "run/3/Debit": "Debit", "run/12/a/b": "a/b", "Debit": "Debit", "x/Debit": "x/Debit", "3/": "3/", "": "",
		"run/lock/2": "Lock 2", "lock/2": "Lock 2", "lock/two": "lock/two", "run/rule/Statement": "Statement",
		"0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11/reserve": "reserve", "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11/lock/3": "Lock 3",
	} {
		require.Equal(t, want, stepName(part), part)
	}
}
