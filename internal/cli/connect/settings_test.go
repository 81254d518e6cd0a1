package connect_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv/tlsfront"
)

// None of the tests here is parallel: the environment is the process's.

const profiles = `
[profile.default]
address = "file:1"
namespace = "of-file"

[profile.cloud]
address = "cloud:1"
api_key = "secret-key"
`

func TestFindFrontend_NoSettings_AreDefaults(t *testing.T) {
	only(t, map[string]string{"TEMPORAL_ADDRESS": "", "TEMPORAL_API_KEY": "", "TEMPORAL_TLS_CLIENT_CERT_PATH": "", "TEMPORAL_TLS": ""})
	f, err := connect.FindFrontend(connect.TemporalFlags{})
	require.NoError(t, err)
	require.Equal(t, "localhost:7233", f.Options.HostPort)
	require.Equal(t, "default", f.Options.Namespace)
	require.Empty(t, f.AddressFrom)
	require.Nil(t, f.Options.ConnectionOptions.TLS)
	require.Nil(t, f.Options.Credentials)
}

func TestUseCodec_Precedence_FlagEnvironmentFile(t *testing.T) {
	only(t, nil)
	use := func(flag string) (endpoint string, options client.Options) {
		f, err := connect.FindFrontend(connect.TemporalFlags{Namespace: "sales"})
		require.NoError(t, err)
		endpoint, err = f.UseCodec(flag)
		require.NoError(t, err)
		return endpoint, f.Options
	}
	endpoint, options := use("")
	require.Empty(t, endpoint)
	require.Nil(t, options.DataConverter)
	t.Setenv("TEMPORAL_CONFIG_FILE", file(t, "[profile.default.codec]\nendpoint = \"http://file:1/{namespace}\"\n"))
	endpoint, options = use("")
	require.Equal(t, "http://file:1/sales", endpoint)
	require.NotNil(t, options.DataConverter)
	t.Setenv("TEMPORAL_CODEC_ENDPOINT", "https://user:secret@env:1")
	endpoint, _ = use("")
	require.Equal(t, "https://user:xxxxx@env:1", endpoint)
	endpoint, _ = use("http://flag:1")
	require.Equal(t, "http://flag:1", endpoint)
}

func TestUseCodec_WrongSettings_AreNamed(t *testing.T) {
	for name, c := range map[string]struct{ flag, endpoint, auth, setting string }{
		"no scheme":  {flag: "127.0.0.1:8081", setting: "--codec-endpoint"},
		"no host":    {endpoint: "http://", setting: "TEMPORAL_CODEC_ENDPOINT"},
		"scheme":     {endpoint: "ftp://codec", setting: "TEMPORAL_CODEC_ENDPOINT"},
		"line break": {endpoint: "http://codec", auth: "Bearer secret\n", setting: "TEMPORAL_CODEC_AUTH"},
	} {
		t.Run(name, func(t *testing.T) {
			only(t, map[string]string{"TEMPORAL_CODEC_ENDPOINT": c.endpoint, "TEMPORAL_CODEC_AUTH": c.auth})
			f, err := connect.FindFrontend(connect.TemporalFlags{})
			require.NoError(t, err)
			_, err = f.UseCodec(c.flag)
			var setting *connect.SettingError
			require.ErrorAs(t, err, &setting)
			require.Equal(t, c.setting, setting.Setting)
			require.NotContains(t, err.Error(), "secret")
			require.Nil(t, f.Options.DataConverter)
		})
	}
}

func TestFindFrontend_Precedence_FlagsEnvironmentFile(t *testing.T) {
	only(t, nil)
	find := func(flags connect.TemporalFlags) *connect.Frontend {
		f, err := connect.FindFrontend(flags)
		require.NoError(t, err)
		return f
	}
	path := file(t, profiles)
	t.Setenv("TEMPORAL_CONFIG_FILE", path)
	f := find(connect.TemporalFlags{})
	require.Equal(t, "file:1", f.Options.HostPort)
	require.Equal(t, "of-file", f.Options.Namespace)
	require.Equal(t, `address of profile "default" in `+path, f.AddressFrom)

	t.Setenv("TEMPORAL_ADDRESS", "env:1")
	t.Setenv("TEMPORAL_NAMESPACE", "of-env")
	f = find(connect.TemporalFlags{})
	require.Equal(t, "env:1", f.Options.HostPort)
	require.Equal(t, "of-env", f.Options.Namespace)
	require.Equal(t, "TEMPORAL_ADDRESS", f.AddressFrom)

	f = find(connect.TemporalFlags{Address: "flag:1", Namespace: "of-flag"})
	require.Equal(t, "flag:1", f.Options.HostPort)
	require.Equal(t, "of-flag", f.Options.Namespace)
	require.Equal(t, "--temporal-address", f.AddressFrom)
}

func TestFindFrontend_TLS_BySettingOrKey(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		env      map[string]string
		flag     *bool
		on, sent bool // TLS; a key
	}{
		"flag":                      {flag: &yes, on: true},
		"variable":                  {env: map[string]string{"TEMPORAL_TLS": "True"}, on: true},
		"server's name":             {env: map[string]string{"TEMPORAL_TLS_SERVER_NAME": "x"}, on: true},
		"key":                       {env: map[string]string{"TEMPORAL_API_KEY": "key"}, on: true, sent: true},
		"key, and the variable not": {env: map[string]string{"TEMPORAL_API_KEY": "key", "TEMPORAL_TLS": "false"}, sent: true},
		"key, and the flag not":     {env: map[string]string{"TEMPORAL_API_KEY": "key"}, flag: &no, sent: true},
		"flag over variable":        {env: map[string]string{"TEMPORAL_TLS": "false"}, flag: &yes, on: true},
		"variable over flag: no":    {env: map[string]string{"TEMPORAL_TLS": "true"}, flag: &no},
	} {
		t.Run(name, func(t *testing.T) {
			only(t, c.env)
			f, err := connect.FindFrontend(connect.TemporalFlags{TLS: c.flag})
			require.NoError(t, err)
			require.Equal(t, c.on, f.Options.ConnectionOptions.TLS != nil)
			require.Equal(t, c.sent, f.Options.Credentials != nil)
			require.Equal(t, !c.on && (c.flag != nil || c.sent), f.Options.ConnectionOptions.TLSDisabled)
		})
	}
}

func TestFindFrontend_InvalidSetting_IsNamedWithoutSecrets(t *testing.T) {
	authority := tlsfront.NewAuthority(t)
	cert, key := authority.Issue(t, "client").Files(t, t.TempDir())
	_, otherKey := authority.Issue(t, "other").Files(t, t.TempDir())
	secretPEM, err := os.ReadFile(key)
	require.NoError(t, err)
	none := filepath.Join(t.TempDir(), "none")
	const certPath, keyPath = "TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH"
	for name, c := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"truth":             {map[string]string{"TEMPORAL_TLS": "on"}, []string{`TEMPORAL_TLS is "on"`, "want true or false"}},
		"other truth":       {map[string]string{"TEMPORAL_TLS_DISABLE_HOST_VERIFICATION": "no"}, []string{`HOST_VERIFICATION is "no"`}},
		"no file":           {map[string]string{"TEMPORAL_CONFIG_FILE": none}, []string{"TEMPORAL_CONFIG_FILE", none, "no such file"}},
		"broken file":       {map[string]string{"TEMPORAL_CONFIG_FILE": file(t, "[profile.default]\napi_key = tsecret\n")}, []string{"TEMPORAL_CONFIG_FILE", "line 2 cannot be read"}},
		"file of numbers":   {map[string]string{"TEMPORAL_CONFIG_FILE": file(t, "[profile.default]\naddress = 7233\n")}, []string{"TEMPORAL_CONFIG_FILE", "line"}},
		"profile":           {map[string]string{"TEMPORAL_CONFIG_FILE": file(t, profiles), "TEMPORAL_PROFILE": "clout"}, []string{`TEMPORAL_PROFILE is "clout"`}},
		"no certificate":    {map[string]string{certPath: none, keyPath: key}, []string{certPath + ` is "` + none, "no such file"}},
		"no key":            {map[string]string{certPath: cert, keyPath: none}, []string{keyPath + ` is "` + none, "no such file"}},
		"key not set":       {map[string]string{certPath: cert}, []string{certPath, "set " + keyPath}},
		"cert not set":      {map[string]string{keyPath: key}, []string{keyPath, "set " + certPath}},
		"other's key":       {map[string]string{certPath: cert, keyPath: otherKey}, []string{certPath, cert, "does not match", keyPath}},
		"no PEM":            {map[string]string{certPath: file(t, "secret"), keyPath: key}, []string{certPath, "PEM"}},
		"path and data":     {map[string]string{certPath: cert, keyPath: key, "TEMPORAL_TLS_CLIENT_KEY_DATA": string(secretPEM)}, []string{keyPath, "TEMPORAL_TLS_CLIENT_KEY_DATA"}},
		"data of no PEM":    {map[string]string{"TEMPORAL_TLS_CLIENT_CERT_DATA": "secret", "TEMPORAL_TLS_CLIENT_KEY_DATA": "secret"}, []string{"TEMPORAL_TLS_CLIENT_CERT_DATA", "PEM"}},
		"path with data":    {map[string]string{certPath: cert, "TEMPORAL_TLS_CLIENT_KEY_DATA": string(secretPEM)}, []string{certPath, "TEMPORAL_TLS_CLIENT_KEY_DATA"}},
		"no authority":      {map[string]string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH": none}, []string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH", none}},
		"empty authority":   {map[string]string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH": file(t, "")}, []string{"TEMPORAL_TLS_SERVER_CA_CERT_PATH", "no certificate"}},
		"authority as data": {map[string]string{"TEMPORAL_TLS_SERVER_CA_CERT_DATA": "secret"}, []string{"TEMPORAL_TLS_SERVER_CA_CERT_DATA", "no certificate"}},
		"key with a break":  {map[string]string{"TEMPORAL_API_KEY": "secret\n"}, []string{"TEMPORAL_API_KEY", "line break"}},
		"header's break":    {map[string]string{"TEMPORAL_GRPC_META_X_TOKEN": "secret\r"}, []string{"TEMPORAL_GRPC_META_X_TOKEN"}},
		"scheme":            {map[string]string{"TEMPORAL_ADDRESS": "https://x:7233"}, []string{`TEMPORAL_ADDRESS is "https://x:7233"`, "host:port"}},
		"in the file": {map[string]string{"TEMPORAL_CONFIG_FILE": file(t, "[profile.default.tls]\nclient_key_path = \""+key+"\"\n")},
			[]string{`tls.client_key_path of profile "default"`, "set " + certPath}},
	} {
		t.Run(name, func(t *testing.T) {
			only(t, c.env)
			_, err := connect.FindFrontend(connect.TemporalFlags{})
			var setting *connect.SettingError
			require.ErrorAs(t, err, &setting)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), "PRIVATE")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}
