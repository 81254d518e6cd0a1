package connect_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// only sets Temporal's variables for a test, and hides the user's own and the user's configuration file.
func only(t *testing.T, env map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "TEMPORAL_") {
			t.Setenv(name, "")
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	for name, value := range env {
		t.Setenv(name, value)
	}
}

// file writes a temporary file.
func file(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
