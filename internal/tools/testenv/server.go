package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// server is a server that the tests of one process share.
type server struct {
	what     string
	variable string
	getenv   func(string) string
	// start runs a container and returns the address of the server in it.
	start func(ctx context.Context) (string, error)

	once  sync.Once
	found string
	err   error
}

var (
	mongoServer    = &server{what: "MongoDB", variable: mongoVariable, getenv: os.Getenv, start: startMongo}
	temporalServer = &server{what: "Temporal server", variable: temporalVariable, getenv: os.Getenv, start: startTemporal}
)

func (s *server) address(t testing.TB) string {
	t.Helper()
	if address := s.getenv(s.variable); address != "" {
		return address
	}
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startWithin)
		defer cancel()
		s.found, s.err = s.start(ctx)
	})
	if s.err != nil {
		t.Fatalf("this test needs a %s: %s is not set, and no container can be started: %v\n%s",
			s.what, s.variable, s.err, s.remedy())
	}
	return s.found
}

// remedy lists the ways to get the server.
func (s *server) remedy() string {
	return fmt.Sprintf(`Any one of these helps:
  - make test                                           (starts the servers, then runs all tests)
  - make stack-up && eval "$(make -s stack-env)"        (for this shell)
  - set %s to a %s that answers
  - start a Docker engine that can pull images`, s.variable, s.what)
}
