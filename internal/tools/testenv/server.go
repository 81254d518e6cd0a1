package testenv

import (
	"fmt"
	"os"
	"testing"
)

// server is a server that the environment names.
type server struct{ what, variable string }

var (
	mongoServer    = server{what: "MongoDB", variable: mongoVariable}
	temporalServer = server{what: "Temporal server", variable: temporalVariable}
)

func (s server) address(t testing.TB) string {
	t.Helper()
	address := os.Getenv(s.variable)
	if address == "" {
		t.Fatalf("this test needs a %s: %s is not set\n%s", s.what, s.variable, s.remedy())
	}
	return address
}

// remedy lists the ways to get the server.
func (s server) remedy() string {
	return fmt.Sprintf(`Any one of these helps:
  - make test                                           (starts the servers, then runs all tests)
  - make stack-up && eval "$(make -s stack-env)"        (for this shell)
  - set %s to a %s that answers`, s.variable, s.what)
}
