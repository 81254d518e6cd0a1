// Command newtemporal starts a Temporal server that is newer than the stack's, runs a command, and ends the server:
//
//	cd internal/tools/stack/newtemporal && go run . go test -C ../../.. ./worker
//
// It sets TEMPORAL_ADDRESS for the command and exits with its exit code. Workflows can be paused on this server. It keeps its data
// in memory and listens on the loopback interface. This is a module of its own, so that the server is not in the library's go.mod.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/chasm/lib/activity"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/temporaltest"
	"google.golang.org/protobuf/types/known/durationpb"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: newtemporal COMMAND [ARGUMENT]...")
		os.Exit(2)
	}
	err := run(os.Args[1], os.Args[2:]...)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "newtemporal:", err)
		os.Exit(1)
	}
}

// run runs the command and returns its error. The server ends with this process.
func run(name string, args ...string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server := temporaltest.NewServer(temporaltest.WithBaseServerOptions(temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
		dynamicconfig.WorkflowPauseEnabled.Key():                []dynamicconfig.ConstrainedValue{{Value: true}},
		activity.EnableStandaloneActivityOperatorCommands.Key(): []dynamicconfig.ConstrainedValue{{Value: true}},
	})))
	address := server.GetFrontendHostPort()
	if err := makeNamespace(ctx, address); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+address)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd.Run()
}

// makeNamespace registers the default namespace and waits until it can be used.
func makeNamespace(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{HostPort: address})
	if err != nil {
		return err
	}
	defer c.Close()
	namespaces := c.WorkflowService()
	if _, err := namespaces.RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: client.DefaultNamespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	}); err != nil {
		return err
	}
	for {
		_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
