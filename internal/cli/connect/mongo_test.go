package connect_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv/tlsfront"
)

func TestMongo_InvalidURI_ErrorHidesPassword(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	cert, key := tlsfront.NewAuthority(t).Issue(t, "client").Files(t, t.TempDir())
	for name, c := range map[string]struct {
		uri  string
		want []string
	}{
		"scheme":             {"http://user:secret@x/", []string{`scheme must be "mongodb" or "mongodb+srv"`}},
		"percent":            {"mongodb://user:se%crsecret@x/", []string{"invalid password: invalid URL escape …"}},
		"slash":              {"mongodb://user:sec/secret@x/", []string{"unescaped slash in password"}},
		"at":                 {"mongodb://user:s@secret/secret@x/", []string{"%40"}},
		"no host":            {"mongodb://user:secret", []string{"invalid host"}},
		"escaped separator":  {"mongodb://user:secret%40x/", []string{"invalid host"}},
		"option":             {"mongodb://user:secret@x/?maxPoolSize=secret", []string{`invalid value for "maxPoolSize": …`}},
		"key's password":     {"mongodb://x/?tls=true&tlsCertificateKeyFilePassword=%secret", []string{"invalid option value"}},
		"no authority":       {"mongodb://user:secret@x/?tls=true&tlsCAFile=" + none, []string{"no such file", `tlsCAFile is "` + none}},
		"authority's no PEM": {"mongodb://user:secret@x/?tls=true&tlsCAFile=" + key, []string{"CA file", `tlsCAFile is "` + key}},
		"no key":             {"mongodb://user:secret@x/?tls=true&tlsCertificateKeyFile=" + cert, []string{"failed to find PRIVATE KEY", `tlsCertificateKeyFile is "` + cert}},
		"no certificate":     {"mongodb://user:secret@x/?tls=true&tlsCertificateKeyFile=" + key, []string{"failed to find CERTIFICATE"}},
		"authentication":     {"mongodb://user:secret@127.0.0.1:1/?authMechanism=PLAIN", []string{"no database answers at [127.0.0.1:1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := connect.Mongo(t.Context(), c.uri, "test")
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), "sec")
			require.NotContains(t, err.Error(), "%cr")
		})
	}
}

// The driver does TLS: its options must reach it, and its errors must come in time.
func TestMongo_TLS_ConnectsOrExplains(t *testing.T) {
	t.Parallel()
	authority := tlsfront.NewAuthority(t)
	conf := authority.AskingClients(t)
	conf.NextProtos = nil
	front := tlsfront.New(t, conf, testenv.MongoPrimary(t))
	pair := authority.Issue(t, "client")
	both := file(t, string(pair.Cert)+string(pair.Key))
	c, err := connect.Mongo(t.Context(), testenv.MongoByProxy(t, front.Address, map[string]string{
		"tls": "true", "tlsCAFile": authority.File(t), "tlsCertificateKeyFile": both,
	}), "test")
	require.NoError(t, err)
	require.NoError(t, c.Disconnect(t.Context()))
	require.Contains(t, front.Clients(), "client")

	_, port, err := net.SplitHostPort(front.Address)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		options map[string]string
		want    string
	}{
		"untrusted":      {map[string]string{"tls": "true", "tlsCertificateKeyFile": both}, "unknown authority"},
		"no certificate": {map[string]string{"tls": "true", "tlsCAFile": authority.File(t)}, "certificate"},
		"plain":          {nil, "no database answers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			_, err := connect.Mongo(t.Context(), testenv.MongoByProxy(t, front.Address, c.options), "test")
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, port)
			require.Less(t, time.Since(begun), time.Minute, "bounded, whatever the machine is doing")
		})
	}
}
