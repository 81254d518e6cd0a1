package main

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/proto"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

// secrets are planted in settings, and searched for in everything that the commands write.
type secrets struct{ text string }

func plant() secrets { return secrets{"Planted" + rand.Text()} }

// absent fails the test if a secret is in a text.
func (s secrets) absent(t *testing.T, where, text string) {
	t.Helper()
	if i := strings.Index(text, s.text); i >= 0 {
		require.Failf(t, "a secret leaked", "%s: …%s…", where, text[max(0, i-200):min(len(text), i+len(s.text)+100)])
	}
}

// settings returns an environment in which all settings that may be secret are.
func (s secrets) settings(t *testing.T, uri, endpoint string) []string {
	t.Helper()
	return []string{
		"LOCKSTEP_MONGODB_URI=" + uri,
		"TEMPORAL_ADDRESS=" + testenv.TemporalAddress(t), "TEMPORAL_API_KEY=" + s.text, "TEMPORAL_TLS=false", "TEMPORAL_GRPC_META_X_TOKEN=" + s.text,
		"TEMPORAL_CODEC_AUTH=" + s.text, "OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_HEADERS=authorization=" + s.text,
	}
}

// everyCommand has the arguments of each command that connects to a server.
var everyCommand = map[string][]string{
	"ps": {"ps"}, "ps json": {"ps", "--json"}, "show": {"show", "account/1"}, "why": {"why", "nobody"}, "ui": {"ui", "--listen", "127.0.0.1:0"},
	"deadlocks": {"deadlocks"}, "orphans": {"orphans"}, "doctor": {"doctor"}, "doctor json": {"doctor", "--json"}, "init": {"init"},
	"release": {"release", "account/1", "nobody", "--reason", "test", "--yes"}, "unhold": {"unhold", "account/1"},
	"hold": {"hold", "account/1", "--reason", "test"}, "worker": {"worker"}, "janitor": {"janitor", "--once"}, "demo": {"demo", "--transfers", "1"},
	"verify": {"verify", "--control", "lost-compare"}, // which ends at the first violation
}

func TestSecrets_DatabaseCannotBeUsed_AreNotPrinted(t *testing.T) {
	t.Parallel()
	s := plant()
	for name, args := range everyCommand {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uri := "mongodb://user:" + s.text + "@127.0.0.1:1/?serverSelectionTimeoutMS=100&tlsCertificateKeyFilePassword=" + s.text
			code, stdout, stderr := lockstep(t, s.settings(t, uri, "http://user:"+s.text+"@127.0.0.1:1"), args...)
			require.NotZero(t, code)
			require.Contains(t, stdout+stderr, "no database answers")
			s.absent(t, "output", stdout+stderr)
		})
	}
	for name, uri := range map[string]string{
		"scheme": "http://user:%s@x/", "percent": "mongodb://user:%%cr%s@x/", "slash": "mongodb://user:a/%s@x/", "at": "mongodb://user:a@%s@x/",
		"no host": "mongodb://user:%s", "space": "mongodb://user: %s@x/", "line break": "mongodb://user:%s@x/\n", "no scheme": "user:%s@x:27017",
		"port": "mongodb://user:%s@x:port/", "option": "mongodb://user:%s@x/?maxPoolSize=%[1]s", "srv": "mongodb+srv://user:%s@127.0.0.1/", "srv port": "mongodb+srv://user:%s@x:1/",
		"mechanism": "mongodb://user:%s@x/?authMechanism=NONE", "key": "mongodb://user:%s@x/?tls=true&tlsCertificateKeyFile=none&tlsCertificateKeyFilePassword=%[1]s",
	} {
		t.Run("uri "+name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := lockstep(t, []string{"LOCKSTEP_MONGODB_URI=" + fmt.Sprintf(uri, s.text)}, "ps", "--no-temporal")
			require.NotZero(t, code)
			require.NotEmpty(t, stderr)
			s.absent(t, "output", stdout+stderr)
		})
	}
}

func TestSecrets_WrongSettings_AreNotPrinted(t *testing.T) {
	t.Parallel()
	s := plant()
	broken := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(broken, []byte("[profile.default]\napi_key = "+s.text+"\n"), 0o600))
	for name, setting := range map[string]string{
		"endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT=http://user:" + s.text + "%@x", "traces endpoint": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=:" + s.text,
		"headers": "OTEL_EXPORTER_OTLP_HEADERS=" + s.text, "header's value": "OTEL_EXPORTER_OTLP_HEADERS=a=%" + s.text, "header's name": "OTEL_EXPORTER_OTLP_HEADERS=a b " + s.text + "=c",
		"API key": "TEMPORAL_API_KEY=" + s.text + "\t", "header": "TEMPORAL_GRPC_META_X_TOKEN=" + s.text + "\t", "file": "TEMPORAL_CONFIG_FILE=" + broken,
		"codec": "TEMPORAL_CODEC_ENDPOINT=ftp://user:" + s.text + "@x",
		"key":   "TEMPORAL_TLS_CLIENT_KEY_DATA=" + s.text, "address": "TEMPORAL_ADDRESS=https://user:" + s.text + "@x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := append(servers(t), "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", setting)
			args := []string{"worker", "--database", "none"}
			if strings.HasPrefix(setting, "OTEL_") { // a worker would serve if nothing refused the setting
				args = []string{"release", "account/1", "nobody", "--reason", "test", "--yes", "--database", "none"}
			}
			code, stdout, stderr := lockstep(t, env, args...)
			require.NotZero(t, code, stdout)
			s.absent(t, "output", stdout+stderr)
		})
	}
}

// collectExports returns the endpoint of a collector, and what processes export to it over OTLP, except headers, in which the collector
// needs its secret.
func collectExports(t *testing.T) (endpoint string, exported *text) {
	t.Helper()
	exported = &text{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		data, _ := io.ReadAll(body)
		_, _ = exported.Write(data)
	}))
	t.Cleanup(collector.Close)
	return collector.URL, exported
}

// Processes whose settings are secret serve workflows. Their output and exports, the documents and the histories do not have the secret.
func TestSecrets_WorkflowsRun_AreStoredNowhere(t *testing.T) {
	t.Parallel()
	s := plant()
	endpoint, exported := collectExports(t)
	env := s.settings(t, s.inOptions(t), strings.Replace(endpoint, "//", "//user:"+s.text+"@", 1))
	served := serveWith(t, env, "--janitor", "1s")
	run := served.foreign(t, acquireAccount)
	require.NoError(t, get(t, run))
	for _, name := range slices.Sorted(maps.Keys(everyCommand)) {
		args := everyCommand[name]
		if slices.Contains([]string{"worker", "ui", "demo", "hold"}, name) { // they serve until they are stopped, or take long
			continue
		}
		_, stdout, stderr := lockstep(t, env, append(slices.Clone(args), "--database", served.database)...)
		s.absent(t, name, stdout+stderr)
		require.NotEmpty(t, stdout+stderr, name)
	}
	served.stop(t)
	s.absent(t, "the worker's output", served.stdout.String()+served.stderr.String())
	require.Contains(t, exported.String(), "lockstep.")
	s.absent(t, "exports", exported.String())

	cursor, err := testenv.Mongo(t).Client().Database(served.database).Collection(defaultCollection).Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var documents []bson.Raw
	require.NoError(t, cursor.All(t.Context(), &documents))
	require.NotEmpty(t, documents)
	for _, d := range documents {
		s.absent(t, "a document", string(d))
	}
	history := &historypb.History{}
	for events := testenv.Temporal(t).GetWorkflowHistory(context.Background(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		e, err := events.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, e)
	}
	text, err := proto.Marshal(history)
	require.NoError(t, err)
	require.Contains(t, string(text), "account/1")
	s.absent(t, "the history", string(text))
}

// inOptions returns the URI of the tests' database with the secret in an option that the server does not check: it requires no password.
func (s secrets) inOptions(t *testing.T) string {
	t.Helper()
	return testenv.MongoByProxy(t, testenv.MongoPrimary(t), map[string]string{"tlsCertificateKeyFilePassword": s.text})
}
