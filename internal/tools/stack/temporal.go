package stack

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

const (
	temporalPackage = "github.com/temporalio/cli/cmd/temporal"
	// temporalVersion is the last version that go install accepts: later modules have replace directives.
	temporalVersion = "v1.5.1"
)

func (s *Stack) temporalChoices() []choice {
	return []choice{
		{
			kind:     "path",
			possible: onPath("temporal"),
			start:    func(ctx context.Context) (Endpoint, error) { return s.startTemporal(ctx, "temporal") },
			remedy:   "put Temporal's command line tool (temporal) on the PATH",
		},
		{
			kind: "go-install",
			possible: func(ctx context.Context) (string, error) {
				_, err := onPath("go")(ctx)
				return "built from its Go module, " + temporalVersion, err
			},
			start: func(ctx context.Context) (Endpoint, error) {
				program, err := s.goTool(ctx, temporalPackage, temporalVersion)
				if err != nil {
					return Endpoint{}, err
				}
				return s.startTemporal(ctx, program)
			},
			remedy: "put go on the PATH, with a module proxy that it can reach",
		},
	}
}

func (s *Stack) startTemporal(ctx context.Context, program string) (Endpoint, error) {
	p, _, err := s.ensure(ctx, s.temporalService(program))
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{Address: hostPort(p.Ports["grpc"]), UI: "http://" + hostPort(p.Ports["ui"])}, nil
}

func (s *Stack) temporalService(program string) service {
	return service{
		name:  "temporal",
		ports: []string{"grpc", "ui"},
		argv: func(ports map[string]int) []string {
			return []string{
				program, "server", "start-dev",
				"--db-filename", filepath.Join(s.cfg.Dir, "data", "temporal", "temporal.db"),
				"--ip", loopback,
				"--port", strconv.Itoa(ports["grpc"]),
				"--ui-port", strconv.Itoa(ports["ui"]),
				"--log-level", "warn",
				// By default each commit rewrites a journal and waits for the disk several times: 800 workflows took 190 s
				// instead of 55 s. Commits still survive a server that is killed.
				"--sqlite-pragma", "journal_mode=WAL",
				"--sqlite-pragma", "synchronous=NORMAL",
				// Server 1.29 has the list of workers, for lockstep doctor, but does not keep it by default.
				"--dynamic-config-value", "frontend.WorkerHeartbeatsEnabled=true",
				"--dynamic-config-value", "frontend.ListWorkersEnabled=true",
			}
		},
		healthy: func(ctx context.Context, ports map[string]int) error {
			return temporalHealthy(ctx, hostPort(ports["grpc"]))
		},
		within: time.Minute,
	}
}

// temporalHealthy describes the default namespace. The server answers other requests before the namespace exists.
func temporalHealthy(ctx context.Context, address string) error {
	c, err := client.DialContext(ctx, client.Options{HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: client.DefaultNamespace})
	return err
}
