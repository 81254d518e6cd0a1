package stack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
)

const (
	temporalPackage = "github.com/temporalio/cli/cmd/temporal"
	// The last version whose module can be installed by name: later ones replace modules.
	temporalVersion = "v1.5.1"
)

func (s *Stack) temporalChoices() []choice {
	return []choice{
		given("TEMPORAL_ADDRESS", s.cfg.TemporalAddress, func() bool { return isOwn(s.state.Temporal, s.cfg.TemporalAddress) },
			s.givenTemporal, "set TEMPORAL_ADDRESS"),
		{
			kind:     "path",
			possible: onPath("temporal"),
			start: func(ctx context.Context) (Endpoint, error) {
				path, err := exec.LookPath("temporal")
				if err != nil {
					return Endpoint{}, err
				}
				return s.runTemporal(ctx, path)
			},
			remedy: "put Temporal's command line tool (temporal) on the PATH",
		},
		{
			kind: "go-install",
			possible: func(context.Context) (string, error) {
				if _, err := exec.LookPath("go"); err != nil {
					return "", errors.New("no go on the PATH")
				}
				return "built from its Go module, " + temporalVersion, nil
			},
			start: func(ctx context.Context) (Endpoint, error) {
				path, err := s.goTool(ctx, temporalPackage, temporalVersion)
				if err != nil {
					return Endpoint{}, err
				}
				return s.runTemporal(ctx, path)
			},
			remedy: "put go on the PATH, with a module proxy that it can reach",
		},
	}
}

func (s *Stack) givenTemporal(ctx context.Context) (Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	if err := temporalHealthy(ctx, s.cfg.TemporalAddress); err != nil {
		return Endpoint{}, fmt.Errorf("TEMPORAL_ADDRESS=%s does not answer: %w; correct it, or unset it to have a server started",
			s.cfg.TemporalAddress, err)
	}
	return Endpoint{Address: s.cfg.TemporalAddress, UI: s.cfg.TemporalUI}, nil
}

func (s *Stack) runTemporal(ctx context.Context, program string) (Endpoint, error) {
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
				// As it comes, every commit rewrites a journal and waits for the disk several times: 800 workflows of
				// four steps, begun within 20 s, took 190 s on two busy cores, and 55 s so. What was committed still
				// survives a killed server.
				"--sqlite-pragma", "journal_mode=WAL",
				"--sqlite-pragma", "synchronous=NORMAL",
			}
		},
		healthy: func(ctx context.Context, ports map[string]int) error {
			return temporalHealthy(ctx, hostPort(ports["grpc"]))
		},
		within: time.Minute,
	}
}

// temporalHealthy asks for the namespace that everything here uses: the server answers before it has one.
func temporalHealthy(ctx context.Context, address string) error {
	c, err := client.DialContext(ctx, client.Options{HostPort: address, Logger: silent{}})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: client.DefaultNamespace})
	return err
}

// silent keeps the SDK from logging each failed probe of a server that is still starting.
type silent struct{}

var _ sdklog.Logger = silent{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
