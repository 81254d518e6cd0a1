package testenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/testcontainers/testcontainers-go"
	testcontainerslog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/wait"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/tools/stack/replicaset"
)

const (
	mongoPort    = "27017/tcp"
	temporalPort = "7233/tcp"
	// startWithin bounds the pull of an image of about 300 MB and the start of its server.
	startWithin = 5 * time.Minute
)

// running holds the containers of this process, for Main to remove.
var running struct {
	sync.Mutex
	containers []testcontainers.Container
}

func startMongo(ctx context.Context) (string, error) {
	image := cmp.Or(os.Getenv("LOCKSTEP_MONGO_IMAGE"), "mongo:8")
	endpoint, err := run(ctx, image, mongoPort, "--replSet", replicaset.Name, "--bind_ip_all")
	if err != nil {
		return "", err
	}
	// The connection is direct, because clients cannot reach the address in the replica set's configuration, which is the one inside
	// the container.
	uri := "mongodb://" + endpoint + "/?directConnection=true"
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return "", err
	}
	_, err = replicaset.Initiate(ctx, c.Database("admin"), "127.0.0.1:27017")
	return uri, errors.Join(err, c.Disconnect(ctx))
}

func startTemporal(ctx context.Context) (string, error) {
	image := cmp.Or(os.Getenv("LOCKSTEP_TEMPORAL_IMAGE"), "temporalio/temporal:latest")
	address, err := run(ctx, image, temporalPort, "server", "start-dev", "--ip", "0.0.0.0", "--headless", "--log-level", "warn",
		// Server 1.29 does not list its workers by default.
		"--dynamic-config-value", "frontend.WorkerHeartbeatsEnabled=true", "--dynamic-config-value", "frontend.ListWorkersEnabled=true")
	if err != nil {
		return "", err
	}
	// The server listens before the default namespace exists.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = describe(ctx, address); err == nil {
			return address, nil
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// describe returns nil if the default namespace exists.
func describe(ctx context.Context, address string) error {
	c, err := client.DialContext(ctx, client.Options{HostPort: address, Logger: logger()})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: client.DefaultNamespace})
	return err
}

// testcontainers would print a description of the engine in each test process. Failures are returned as errors.
func init() { testcontainerslog.SetDefault(log.New(io.Discard, "", 0)) }

// run starts a container and returns the address of its port.
func run(ctx context.Context, image, port string, command ...string) (_ string, err error) {
	// testcontainers panics if it finds no engine.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithCmd(command...),
		testcontainers.WithExposedPorts(port),
		testcontainers.WithWaitStrategyAndDeadline(startWithin, wait.ForListeningPort(port)),
	)
	if c != nil {
		running.Lock()
		running.containers = append(running.containers, c)
		running.Unlock()
	}
	if err != nil {
		return "", err
	}
	return c.PortEndpoint(ctx, port, "")
}

// removeContainers ends the containers of this process.
func removeContainers() error {
	running.Lock()
	defer running.Unlock()
	var errs []error
	for _, c := range running.containers {
		errs = append(errs, testcontainers.TerminateContainer(c))
	}
	running.containers = nil
	return errors.Join(errs...)
}
