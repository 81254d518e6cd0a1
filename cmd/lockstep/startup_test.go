package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// During an election no server answers for about ten seconds.
func TestStart_DatabaseAnswersLater_IsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"worker", "janitor"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			uri, open := testenv.MongoLater(t)
			p := start(t, append(servers(t), "LOCKSTEP_MONGODB_URI="+uri), command, "--database", testenv.Mongo(t).Name())
			p.waitsForDatabase(t)
			open()
			require.Contains(t, p.line(t), "Ctrl-C stops")
			p.interrupt(t)
			require.Zero(t, p.wait(t), &p.stderr)
		})
	}
}

func TestStart_InterruptedWhileItWaits_Ends(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"worker", "janitor"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			uri, _ := testenv.MongoLater(t)
			p := start(t, append(servers(t), "LOCKSTEP_MONGODB_URI="+uri), command)
			p.waitsForDatabase(t)
			began := time.Now()
			p.interrupt(t)
			require.Equal(t, 130, p.wait(t), &p.stderr)
			require.Less(t, time.Since(began), 20*time.Second)
			require.True(t, strings.HasSuffix(p.stderr.String(), "lockstep: interrupted\n"), &p.stderr)
			require.Empty(t, p.stdout.String())
		})
	}
}

func (p *process) waitsForDatabase(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), "waits for the database") }, within, 10*time.Millisecond, "%s", &p.stderr)
}
