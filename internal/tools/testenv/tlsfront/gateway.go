package tlsfront

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// Gateway starts a proxy for a gRPC server. It refuses requests without the wanted headers as unauthenticated, with an error text that
// repeats the value they had. It ends with the test.
func Gateway(t testing.TB, conf *tls.Config, backend string, wanted map[string]string) (address string) {
	t.Helper()
	plain := new(http.Protocols)
	plain.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: plain}
	to, err := url.Parse("http://" + backend)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for key, value := range wanted {
			if have := r.Header.Get(key); have != value {
				w.Header().Set("Content-Type", "application/grpc")
				w.Header().Set("Grpc-Status", "16")
				w.Header().Set("Grpc-Message", key+" is not "+have)
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	server.TLS, server.EnableHTTP2 = conf, true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.Listener.Addr().String()
}
