package tlsfront

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// Front is a proxy that accepts TLS connections for a server without TLS.
type Front struct {
	*testenv.Wire

	mu      sync.Mutex
	clients []string
}

// New starts a front for the server at the address backend. It ends with the test.
func New(t testing.TB, conf *tls.Config, backend string) *Front {
	t.Helper()
	f := &Front{}
	f.Wire = testenv.NewWire(t, backend, func(plain net.Conn) net.Conn {
		secured := tls.Server(plain, conf)
		if err := secured.HandshakeContext(t.Context()); err != nil {
			// Unread input would cause a reset, which may reach the client before the TLS alert does.
			_ = plain.SetReadDeadline(time.Now().Add(5 * time.Second)) // bounds the copy below
			_, _ = io.Copy(io.Discard, plain)
			return nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range secured.ConnectionState().PeerCertificates {
			f.clients = append(f.clients, c.Subject.CommonName)
		}
		return secured
	})
	return f
}

// Clients returns the names in the certificates of the clients, in the order of their connections.
func (f *Front) Clients() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.clients)
}

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
