package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that ends by itself is a crash, and one that the program kills is not.
func TestPool_ProcessEnds_CrashIsLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script  string
		crashed int
	}{
		"by itself": {"echo ready; exit 0", 1},
		"killed":    {"echo ready; exec sleep 60", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			exe := filepath.Join(dir, "child")
			require.NoError(t, os.WriteFile(exe, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700))
			log, err := OpenLog(dir, "program", -1)
			require.NoError(t, err)
			p := newPool(exe, log, func(slot int) Child { return Child{Dir: dir, Slot: slot} })
			require.NoError(t, p.start(t.Context(), 0))
			proc := p.At(0)
			if c.crashed > 0 {
				<-proc.Ended()
				require.Empty(t, kill(proc), "there was nothing to kill")
			} else {
				require.Contains(t, kill(proc), "ended by SIGKILL")
			}
			require.NoError(t, log.Close())
			records, err := ReadLogs(dir)
			require.NoError(t, err)
			require.Len(t, read(records).crashes(), c.crashed)
		})
	}
}

func TestJudge_SeedWithoutEvidence_IsAnError(t *testing.T) {
	t.Parallel()
	nothing := []Record{{What: Total}, {What: Over, At: 120_000 * ms}}
	require.ErrorIs(t, settings{long: 2 * time.Minute}.judge(read(nothing), 1, ""), errEmpty)
	require.NoError(t, settings{long: time.Minute}.judge(read(nothing), 1, ""), "a short run may show little")
}
