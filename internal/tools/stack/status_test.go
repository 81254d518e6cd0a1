package stack

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnv_NoStack_IsNotUp(t *testing.T) {
	t.Parallel()
	s := setup(t)
	env, err := s.Env(t.Context())
	require.ErrorIs(t, err, ErrNotUp)
	require.ErrorContains(t, err, "make stack-up")
	require.Empty(t, env)
}

func TestEnv_DeadPart_IsNamed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := startHelper(t, s)
	kill(t, p)
	s.state.Up = true
	s.state.Mongo.Address = "mongodb://" + hostPort(p.Ports["main"]) + "/?serverSelectionTimeoutMS=100"
	s.state.Temporal.Address = hostPort(p.Ports["main"])
	require.NoError(t, s.state.save(s.cfg.Dir))
	_, err := s.Env(t.Context())
	require.ErrorIs(t, err, ErrNotUp)
	require.ErrorContains(t, err, "helper: has ended")
	require.ErrorContains(t, err, "repair")
}

func TestEnv_Shell_ReadsAddresses(t *testing.T) {
	t.Parallel()
	st := State{
		Mongo:    Endpoint{Address: "mongodb://h:1/?a=b&c='$HOME'"},
		Temporal: Endpoint{Address: "127.0.0.1:2", UI: "http://127.0.0.1:3"},
	}
	script := st.env() + `printf '%s|%s|%s' "$LOCKSTEP_MONGODB_URI" "$TEMPORAL_ADDRESS" "$LOCKSTEP_TEMPORAL_UI"`
	out, err := exec.Command("sh", "-euc", script).Output()
	require.NoError(t, err)
	require.Equal(t, "mongodb://h:1/?a=b&c='$HOME'|127.0.0.1:2|http://127.0.0.1:3", string(out))

	st.Temporal.UI = ""
	require.NotContains(t, st.env(), "LOCKSTEP_TEMPORAL_UI", "an empty address is not exported")
}

func TestPrintStatus_Parts_AreListed(t *testing.T) {
	t.Parallel()
	st := State{
		Up:       true,
		Mongo:    Endpoint{Kind: "given", Address: "mongodb://me:secret@h:1/", Why: []string{"given: LOCKSTEP_MONGODB_URI names it"}},
		Temporal: Endpoint{Kind: "path", Address: "127.0.0.1:2", UI: "http://127.0.0.1:3"},
		Parts:    []Part{{Name: "temporal", PID: 4, Ports: map[string]int{"ui": 3, "grpc": 2}, Log: "/logs/temporal.log"}},
	}
	var out bytes.Buffer
	printStatus(&out, "/stack", st, []error{nil}, nil)
	for _, want := range []string{
		"up      /stack", "given: LOCKSTEP_MONGODB_URI names it", "Web UI    http://127.0.0.1:3", "temporal", "ok",
		"grpc 127.0.0.1:2, ui 127.0.0.1:3", "4", "/logs/temporal.log",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "secret")

	out.Reset()
	printStatus(&out, "/stack", st, []error{ErrNotUp}, ErrNotUp)
	require.Contains(t, out.String(), "not up  /stack")
	require.Contains(t, out.String(), "failed")
}
