package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// The printed address works in a browser, whatever the token is.
func TestUI_PrintedAddress_IsAnswered(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	for _, listen := range []string{":0", "127.0.0.1:0", "0.0.0.0:0"} {
		p := start(t, append(servers(t), `LOCKSTEP_UI_TOKEN=a;b"c d&é`), "ui", "--no-temporal", "--listen", listen, "--database", l.database)
		line := p.line(t)
		address, err := url.Parse(line)
		require.NoError(t, err)
		require.NotContains(t, line, " ")
		require.False(t, net.ParseIP(address.Hostname()).IsUnspecified(), line)

		// The machine may not be able to resolve its own name.
		here := func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", address.Port()))
		}
		browser := &http.Client{Transport: &http.Transport{DialContext: here, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address.String(), http.NoBody)
		require.NoError(t, err)
		answer, err := browser.Do(req)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, line)
		p.interrupt(t)
		require.Zero(t, p.wait(t), &p.stderr)
	}
}

func TestUI_WaitingWorkflow_IsServedUntilInterrupt(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	p := d.start(t, "ui", "--listen", "127.0.0.1:0")
	address := p.line(t)
	first := d.come(t, "Enter", lockcore.StateHolding)
	second := d.come(t, "Enter", lockcore.StateWaiting)
	page := func(path string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, http.NoBody)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode, string(body))
		return string(body)
	}
	require.Contains(t, page(""), first.GetID())
	why := page("why?workflow=" + second.GetID())
	require.Contains(t, why, "it is at work: Work has been running for")
	require.Contains(t, why, "lockstep release door ")
	close(d.work)
	require.NoError(t, second.Get(t.Context(), nil))
	p.interrupt(t)
	require.Zero(t, p.wait(t), &p.stderr)
}
