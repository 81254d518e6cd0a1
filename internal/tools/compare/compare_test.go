package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func someResults() []*result {
	return []*result{
		{
			name: "Lockstep", pairs: []pairResult{{3, 1}, {9, 3}, {4, 2}}, handOffs: []handOffResult{{4, 5}, {2, 6}, {3, 7}},
			fairs: []fairResult{{10, 40, 100, 9, 3}}, crowd: &crowdResult{idleRequests: 10, idleCPU: 0.25, served: 200, seconds: 2, requests: 700, cpu: 1.5},
			faults: &faultResult{killed: 4 * time.Second, stopped: 5 * time.Second, late: late{Write: "fenced", Told: 12, Check: "lost", CanCheck: true}},
		},
		{
			name: "a <b>", pairs: []pairResult{{2, 1}}, handOffs: []handOffResult{{40, 50}}, fairs: []fairResult{{1, 4000, 300, 900, 0}},
			crowd: &crowdResult{served: 150, cpu: -1}, faults: &faultResult{killed: -1, stopped: -1, late: late{Told: -1, CanCheck: true}},
		},
	}
}

func TestTables_Results_AreMediansOfTurns(t *testing.T) {
	t.Parallel()
	parts := tables(someResults(), full)
	require.Len(t, parts, 4)
	require.Equal(t, []string{"Lockstep", "2.00", "4.00", "3.00", "3.00", "6.00"}, parts[0].rows[1], "the ratio is the median of the turns' ratios")
	require.Equal(t, []string{"Lockstep", "100", "10.0", "40.0", "4.00", "9, 3"}, parts[1].rows[1])
	require.Equal(t, []string{"Lockstep", "10.0", "25 %", "2.00", "700", "1.50"}, parts[2].rows[1])
	require.Equal(t, []string{"a <b>", "0", "unknown", "150 of 200 in 30s", "0", "unknown"}, parts[2].rows[2])
	require.Equal(t, []string{"Lockstep", "4.00 s", "5.00 s", "after 12 ms", "lost", "refused"}, parts[3].rows[1])
	require.Equal(t, []string{"a <b>", "not within 15s", "not within 15s", "it still holds the lock", "held", "accepted, as it should be"}, parts[3].rows[2])
}

func TestPrint_Markdown_IsATable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, print(&out, []part{{"caption", [][]string{{"a", "b"}, {"1", "2"}}}}, true))
	require.Equal(t, "\ncaption\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n", out.String())
}

func TestDrawChart_Results_BeginWithLongestBar(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, drawChart(&out, someResults()))
	decoder := xml.NewDecoder(bytes.NewReader(out.Bytes()))
	rects := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			rects++
		}
	}
	require.Equal(t, len(panels)*2, rects)
	shares := logarithmic(someResults(), (*result).handOff)
	require.Greater(t, shares[0], 0.0)
	require.Less(t, shares[0], shares[1])
	require.InDelta(t, 1, shares[1], 1e-9)
}

func TestParseStat_NameWithSpacesAndParentheses_IsSkipped(t *testing.T) {
	t.Parallel()
	pid, parent, ticks, err := parseStat([]byte("42 (a (b) c) S 7 1 1 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0 1 0 5 6 7"))
	require.NoError(t, err)
	require.Equal(t, 42, pid)
	require.Equal(t, 7, parent)
	require.Equal(t, int64(4330), ticks)
}

func TestProcessorTime_Child_IsCounted(t *testing.T) {
	t.Parallel()
	// The shell works, as a child of this process, until it has used a fifth of a second.
	busy := exec.CommandContext(t.Context(), "bash", "-c", "while read -r _ _ _ _ _ _ _ _ _ _ _ _ _ user rest < /proc/self/stat; [ $user -lt 20 ]; do :; done; echo; read")
	in, err := busy.StdinPipe()
	require.NoError(t, err)
	out, err := busy.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, busy.Start())
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	used, err := processorTime([]int{os.Getpid()})
	require.NoError(t, err)
	alone, err := processorTime([]int{busy.Process.Pid})
	require.NoError(t, err)
	require.GreaterOrEqual(t, alone, 200*time.Millisecond)
	require.GreaterOrEqual(t, used, alone)
	require.NoError(t, in.Close())
	_ = busy.Wait() // read fails at the end of its input
}

// careless grants a lock to every client.
type careless struct{ instance }

func (careless) acquire(context.Context, int, string) (*held, error) {
	return &held{release: func(context.Context) error { return nil }}, nil
}

func TestMeasures_TwoHolders_Fail(t *testing.T) {
	t.Parallel()
	g := &group{system: system{name: "careless"}, sizes: short, sent: new(atomic.Int64)}
	for range processes {
		g.instances = append(g.instances, careless{})
	}
	for name, run := range map[string]func(context.Context) error{
		"hand-off": func(ctx context.Context) error { _, err := g.handOff(ctx); return err },
		"fairness": func(ctx context.Context) error { _, err := g.fairly(ctx); return err },
		"crowd":    func(ctx context.Context) error { _, err := g.manyWaiters(ctx); return err },
	} {
		g.holders.Store(0)
		require.ErrorContains(t, run(t.Context()), "two clients hold the lock", name)
	}
}

func TestChoose_UnknownSystem_IsRefused(t *testing.T) {
	t.Parallel()
	chosen, err := choose("redislock,etcd")
	require.NoError(t, err)
	require.Len(t, chosen, 2)
	_, err = choose("redislock,zookeeper")
	require.ErrorContains(t, err, `no system "zookeeper"`)
}
