package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is printed is an address for a browser, at which the page answers, whatever the token is.
func TestThePageAnswersAtTheAddressThatIsPrinted(t *testing.T) {
	t.Parallel()
	s := openShed(t)
	for _, listen := range []string{":0", "127.0.0.1:0", "0.0.0.0:0"} {
		c := exec.CommandContext(t.Context(), binary, append([]string{"ui", "--no-temporal", "--listen", listen}, s.args...)...)
		c.Env = append(append(c.Environ(), servers(t)...), `LOCKSTEP_UI_TOKEN=a;b"c d&é`)
		stdout, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		line, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		address, err := url.Parse(strings.TrimSpace(line))
		require.NoError(t, err)
		require.NotContains(t, line, " ")
		require.False(t, net.ParseIP(address.Hostname()).IsUnspecified(), line)

		// This machine's name may not be known to it.
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
		require.NoError(t, c.Process.Signal(os.Interrupt))
		require.NoError(t, c.Wait())
	}
}
