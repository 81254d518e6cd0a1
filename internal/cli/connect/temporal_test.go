package connect_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv/tlsfront"
)

// dial connects with the settings of the environment.
func dial(t *testing.T, flags connect.TemporalFlags) (client.Client, error) {
	t.Helper()
	f, err := connect.FindFrontend(flags)
	require.NoError(t, err)
	f.Options.Logger = sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	return f.Dial(t.Context())
}

func TestDial_UnusableServer_IsExplained(t *testing.T) {
	temporal := testenv.TemporalAddress(t)
	ours, theirs := tlsfront.NewAuthority(t), tlsfront.NewAuthority(t)
	trust := "TEMPORAL_TLS_SERVER_CA_CERT_PATH"
	one := tlsfront.New(t, ours.Server(t, ""), temporal).Address
	named := tlsfront.New(t, ours.Server(t, "frontend"), temporal).Address
	asking := tlsfront.New(t, ours.AskingClients(t), temporal).Address
	older := ours.AskingClients(t)
	older.MaxVersion = tls.VersionTLS12
	askingAtOnce := tlsfront.New(t, older, temporal).Address
	foreignCert, foreignKey := theirs.Issue(t, "foreign").Files(t, t.TempDir())
	gateway := tlsfront.Gateway(t, ours.Server(t, ""), temporal, map[string]string{"Authorization": "Bearer the-key"})
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()

	for name, c := range map[string]struct {
		address string
		env     map[string]string
		want    error
		texts   []string
	}{
		"nobody":          {"127.0.0.1:1", nil, connect.ErrNoAnswer, []string{"refused"}},
		"nobody, TLS":     {"127.0.0.1:1", map[string]string{"TEMPORAL_TLS": "true"}, connect.ErrNoAnswer, []string{"refused"}},
		"silence":         {silent.Addr().String(), map[string]string{"TEMPORAL_TLS": "true"}, connect.ErrNoAnswer, []string{"deadline"}},
		"untrusted":       {one, map[string]string{"TEMPORAL_TLS": "true"}, connect.ErrUntrusted, []string{"unknown authority", trust}},
		"other authority": {one, map[string]string{trust: theirs.File(t)}, connect.ErrUntrusted, []string{"unknown authority", trust}},
		"other name":      {named, map[string]string{trust: ours.File(t)}, connect.ErrUntrusted, []string{"127.0.0.1", "TEMPORAL_TLS_SERVER_NAME"}},
		"plain to TLS":    {one, nil, connect.ErrWantsTLS, []string{"set TEMPORAL_TLS=true"}},
		"plain to mTLS":   {asking, nil, connect.ErrWantsTLS, []string{"set TEMPORAL_TLS=true"}},
		"plain to older":  {askingAtOnce, nil, connect.ErrWantsTLS, []string{"set TEMPORAL_TLS=true"}},
		"TLS to plain":    {temporal, map[string]string{"TEMPORAL_TLS": "true"}, connect.ErrNoTLS, []string{"TEMPORAL_TLS=false"}},
		"no certificate":  {asking, map[string]string{trust: ours.File(t)}, connect.ErrClientCertificate, []string{"certificate required", "TEMPORAL_TLS_CLIENT_CERT_PATH"}},
		"none, older":     {askingAtOnce, map[string]string{trust: ours.File(t)}, connect.ErrClientCertificate, []string{"handshake failure", "TEMPORAL_TLS_CLIENT_CERT_PATH"}},
		"foreign": {asking, map[string]string{trust: ours.File(t), "TEMPORAL_TLS_CLIENT_CERT_PATH": foreignCert, "TEMPORAL_TLS_CLIENT_KEY_PATH": foreignKey},
			connect.ErrClientCertificate, []string{"unknown certificate authority", "TEMPORAL_TLS_CLIENT_CERT_PATH"}},
		"no key":    {gateway, map[string]string{trust: ours.File(t)}, connect.ErrCredentials, []string{"TEMPORAL_API_KEY"}},
		"other key": {gateway, map[string]string{trust: ours.File(t), "TEMPORAL_API_KEY": "secret"}, connect.ErrCredentials, []string{"TEMPORAL_API_KEY", "is not Bearer …"}},
		"namespace": {temporal, map[string]string{"TEMPORAL_NAMESPACE": "nowhere"}, connect.ErrNamespace, []string{`nowhere`, "TEMPORAL_NAMESPACE"}},
	} {
		t.Run(name, func(t *testing.T) {
			only(t, c.env)
			t.Setenv("TEMPORAL_ADDRESS", c.address)
			begun := time.Now()
			_, err := dial(t, connect.TemporalFlags{})
			require.ErrorIs(t, err, c.want, "%v", err)
			var frontend *connect.FrontendError
			require.ErrorAs(t, err, &frontend)
			for _, text := range append(c.texts, c.address+" (TEMPORAL_ADDRESS)") {
				require.ErrorContains(t, err, text)
			}
			require.NotContains(t, err.Error(), "secret")
			require.Less(t, len(err.Error()), 400)
			require.Less(t, time.Since(begun), time.Minute, "bounded, whatever the machine is doing")
		})
	}
}

func TestDial_Variables_Connect(t *testing.T) {
	temporal := testenv.TemporalAddress(t)
	authority := tlsfront.NewAuthority(t)
	pair := authority.Issue(t, "client")
	cert, key := pair.Files(t, t.TempDir())
	asking := tlsfront.New(t, authority.AskingClients(t), temporal).Address
	named := tlsfront.New(t, authority.Server(t, "frontend"), temporal).Address
	gateway := tlsfront.Gateway(t, authority.Server(t, ""), temporal, map[string]string{"Authorization": "Bearer the-key", "X-Region": "here"})
	const trust = "TEMPORAL_TLS_SERVER_CA_CERT_PATH"
	for name, env := range map[string]map[string]string{
		"plain": {"TEMPORAL_ADDRESS": temporal},
		"certificate in files": {
			"TEMPORAL_ADDRESS": asking, trust: authority.File(t), "TEMPORAL_TLS_CLIENT_CERT_PATH": cert, "TEMPORAL_TLS_CLIENT_KEY_PATH": key,
		},
		"certificate as data": {
			"TEMPORAL_ADDRESS": asking, "TEMPORAL_TLS_SERVER_CA_CERT_DATA": string(authority.PEM()),
			"TEMPORAL_TLS_CLIENT_CERT_DATA": string(pair.Cert), "TEMPORAL_TLS_CLIENT_KEY_DATA": string(pair.Key),
		},
		"server's name": {"TEMPORAL_ADDRESS": named, trust: authority.File(t), "TEMPORAL_TLS_SERVER_NAME": "frontend"},
		"unverified":    {"TEMPORAL_ADDRESS": named, "TEMPORAL_TLS_DISABLE_HOST_VERIFICATION": "true"},
		"key and header": {
			"TEMPORAL_ADDRESS": gateway, trust: authority.File(t), "TEMPORAL_API_KEY": "the-key", "TEMPORAL_GRPC_META_X_REGION": "here",
		},
		"profile": {"TEMPORAL_PROFILE": "cloud", "TEMPORAL_CONFIG_FILE": file(t, `
[profile.cloud]
address = "`+gateway+`"
api_key = "the-key"
[profile.cloud.tls]
server_ca_cert_path = "`+authority.File(t)+`"
[profile.cloud.grpc_meta]
x-region = "here"
`)},
	} {
		t.Run(name, func(t *testing.T) {
			only(t, env)
			c, err := dial(t, connect.TemporalFlags{})
			require.NoError(t, err)
			c.Close()
		})
	}
}

// The remedy names the place in which the wrong namespace was set.
func TestDial_UnknownNamespace_NamesWhereItWasSet(t *testing.T) {
	temporal := testenv.TemporalAddress(t)
	profile := map[string]string{"TEMPORAL_CONFIG_FILE": file(t, "[profile.default]\nnamespace = \"nowhere\"\n")}
	variable := map[string]string{"TEMPORAL_NAMESPACE": "nowhere"}
	for want, c := range map[string]struct {
		env   map[string]string
		flags connect.TemporalFlags
	}{
		": correct --namespace;":                      {variable, connect.TemporalFlags{Namespace: "nowhere"}},
		": correct TEMPORAL_NAMESPACE;":               {variable, connect.TemporalFlags{}},
		`: correct namespace of profile "default" in`: {profile, connect.TemporalFlags{}},
	} {
		t.Run(want, func(t *testing.T) {
			only(t, c.env)
			t.Setenv("TEMPORAL_ADDRESS", temporal)
			_, err := dial(t, c.flags)
			require.ErrorIs(t, err, connect.ErrNamespace)
			require.ErrorContains(t, err, want)
		})
	}
}

// A worker may run for longer than a certificate is valid.
func TestDial_RenewedCertificate_IsUsed(t *testing.T) {
	authority := tlsfront.NewAuthority(t)
	dir := t.TempDir()
	cert, key := authority.Issue(t, "first").Files(t, dir)
	front := tlsfront.New(t, authority.AskingClients(t), testenv.TemporalAddress(t))
	only(t, map[string]string{
		"TEMPORAL_ADDRESS": front.Address, "TEMPORAL_TLS_SERVER_CA_CERT_PATH": authority.File(t),
		"TEMPORAL_TLS_CLIENT_CERT_PATH": cert, "TEMPORAL_TLS_CLIENT_KEY_PATH": key,
	})
	c, err := dial(t, connect.TemporalFlags{})
	require.NoError(t, err)
	defer c.Close()
	again := func() {
		before := len(front.Clients())
		front.Cut()
		front.Mend()
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
			return err == nil && len(front.Clients()) > before
		}, time.Minute, 20*time.Millisecond, "it does not connect again")
	}
	require.Equal(t, "first", front.Clients()[0])
	authority.Issue(t, "second").Files(t, dir)
	again()
	tlsfront.Pair{Cert: []byte("half of"), Key: []byte("half of")}.Files(t, dir) // being written
	again()
	clients := front.Clients()
	require.Equal(t, []string{"second", "second"}, clients[len(clients)-2:])
}
