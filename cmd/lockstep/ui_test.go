package main

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// The printed address works in a browser. A token that the caller has set is not printed, and any text works.
func TestUI_PrintedAddress_IsAnswered(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.ask(t, "holder", "p", "r")
	for _, c := range []struct{ listen, token string }{{":0", ""}, {"127.0.0.1:0", ""}, {"0.0.0.0:0", ""}, {":0", `a;b"c d&é`}} {
		p := start(t, append(servers(t), "LOCKSTEP_UI_TOKEN="+c.token), "ui", "--no-temporal", "--listen", c.listen, "--database", l.database)
		line := p.line(t)
		address, err := url.Parse(line)
		require.NoError(t, err)
		if c.token != "" {
			require.Empty(t, address.RawQuery, "the token is a secret")
			require.Contains(t, p.stdout.String(), "add ?token= and the value of LOCKSTEP_UI_TOKEN")
			address.RawQuery = url.Values{"token": {c.token}}.Encode()
		}
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
