package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv/tlsfront"
)

func TestJanitor_ClientCertificates_Connects(t *testing.T) {
	t.Parallel()
	authority := tlsfront.NewAuthority(t)
	cert, key := authority.Issue(t, "lockstep").Files(t, t.TempDir())
	front := tlsfront.New(t, authority.AskingClients(t), testenv.TemporalAddress(t))
	env := []string{
		"TEMPORAL_ADDRESS=" + front.Address, "LOCKSTEP_MONGODB_URI=" + testenv.MongoURI(t),
		"TEMPORAL_TLS_SERVER_CA_CERT_PATH=" + authority.File(t), "TEMPORAL_TLS_CLIENT_CERT_PATH=" + cert, "TEMPORAL_TLS_CLIENT_KEY_PATH=" + key,
	}
	janitor := []string{"janitor", "--once", "--database", testenv.Mongo(t).Name()}
	code, _, stderr := lockstep(t, env, janitor...)
	require.Zero(t, code, stderr)
	require.Contains(t, front.Clients(), "lockstep")
	code, _, stderr = lockstep(t, env, append(janitor, "--tls", "--temporal-address", front.Address)...)
	require.Zero(t, code, stderr)
}

// The profile is like one of Temporal Cloud: an API key, and TLS because of it. The database requires certificates too.
func TestWorker_KeyAndDatabaseTLS_Serves(t *testing.T) {
	t.Parallel()
	authority := tlsfront.NewAuthority(t)
	gateway := tlsfront.Gateway(t, authority.Server(t, ""), testenv.TemporalAddress(t), map[string]string{"Authorization": "Bearer the-key"})
	file := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(file, []byte(`
[profile.cloud]
address = "`+gateway+`"
namespace = "default"
api_key = "the-key"
[profile.cloud.tls]
server_ca_cert_path = "`+authority.File(t)+`"
`), 0o600))
	env := []string{"TEMPORAL_ADDRESS=", "TEMPORAL_CONFIG_FILE=" + file, "TEMPORAL_PROFILE=cloud", "LOCKSTEP_MONGODB_URI=" + mongoByTLS(t, authority)}
	s := serveWith(t, env, "--janitor", "0")
	run := s.foreign(t, acquireAccount)
	require.NoError(t, get(t, run))
	require.Len(t, s.states(t, "account/1", ""), 1)
	s.stop(t)

	code, stdout, stderr := lockstep(t, append(slices.Clone(env), "TEMPORAL_API_KEY=secret"), "worker")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "the server does not accept the credentials at "+gateway+` (address of profile "cloud" in `+file)
	require.Contains(t, stderr, "TEMPORAL_API_KEY")
	require.NotContains(t, stderr, "secret")
}

// mongoByTLS returns the URI of the tests' database behind a proxy that requires certificates.
func mongoByTLS(t *testing.T, authority *tlsfront.Authority) string {
	t.Helper()
	conf := authority.AskingClients(t)
	conf.NextProtos = nil // it is not HTTP
	pair := authority.Issue(t, "lockstep")
	both := filepath.Join(t.TempDir(), "both.pem")
	require.NoError(t, os.WriteFile(both, append(pair.Cert, pair.Key...), 0o600))
	return testenv.MongoByProxy(t, tlsfront.New(t, conf, testenv.MongoPrimary(t)).Address, map[string]string{
		"tls": "true", "tlsCAFile": authority.File(t), "tlsCertificateKeyFile": both,
	})
}
