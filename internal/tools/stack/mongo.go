package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/tools/stack/replicaset"
)

const (
	dockerWithin = 10 * time.Second
	// pullWithin bounds the pull of an image of about 300 MB, so that an unreachable registry does not block the other choices.
	pullWithin   = 5 * time.Minute
	removeWithin = 30 * time.Second
)

func (s *Stack) mongoChoices() []choice {
	return []choice{
		{
			kind:     "docker",
			possible: s.dockerPossible,
			start:    func(ctx context.Context) (Endpoint, error) { return s.replicaSet(ctx, s.dockerService()) },
			remedy:   "start a Docker engine that has or can pull the image " + s.cfg.MongoImage + " (LOCKSTEP_MONGO_IMAGE names another one)",
		},
		{
			kind:     "mongod",
			possible: onPath("mongod"),
			start:    func(ctx context.Context) (Endpoint, error) { return s.replicaSet(ctx, s.mongodService("mongod")) },
			remedy:   "put mongod on the PATH",
		},
		{
			kind:     "documentdb",
			possible: documentDBPossible,
			start:    s.documentDB,
			remedy:   "run on Debian as root, to build and start FerretDB on PostgreSQL with DocumentDB",
		},
	}
}

// replicaSet starts a MongoDB and makes it a replica set of one node, if the server supports replica sets.
func (s *Stack) replicaSet(ctx context.Context, svc service) (Endpoint, error) {
	p, _, err := s.ensure(ctx, svc)
	if err != nil {
		return Endpoint{}, err
	}
	host := hostPort(p.Ports["mongo"])
	var supported bool
	err = withMongo(ctx, directURI(p.Ports["mongo"]), func(admin *mongo.Database) (err error) {
		supported, err = replicaset.Initiate(ctx, admin, host)
		return err
	})
	if err != nil {
		return Endpoint{}, err
	}
	uri := "mongodb://" + host + "/"
	if supported {
		uri += "?replicaSet=" + replicaset.Name
	}
	return Endpoint{Address: uri}, nil
}

func (s *Stack) mongodService(program string) service {
	return service{
		name:  "mongod",
		ports: []string{"mongo"},
		argv: func(ports map[string]int) []string {
			return []string{
				program,
				"--replSet", replicaset.Name,
				"--bind_ip", loopback,
				"--port", strconv.Itoa(ports["mongo"]),
				"--dbpath", filepath.Join(s.cfg.Dir, "data", "mongod"),
			}
		},
		healthy: mongoAnswers,
		within:  time.Minute,
	}
}

// dockerService runs the container in the foreground of a process, so its output goes to a log and its end is noticed. The server
// uses the same port inside and outside the container, because a replica set member must be reachable from itself under the
// address that its clients use.
func (s *Stack) dockerService() service {
	name := s.containerName()
	return service{
		name:      "mongo-container",
		ports:     []string{"mongo"},
		container: name,
		argv: func(ports map[string]int) []string {
			port := strconv.Itoa(ports["mongo"])
			return []string{
				"docker", "run", "--rm", "--name", name,
				"--publish", hostPort(ports["mongo"]) + ":" + port,
				"--volume", name + ":/data/db",
				s.cfg.MongoImage,
				"--replSet", replicaset.Name, "--bind_ip_all", "--port", port,
			}
		},
		healthy: mongoAnswers,
		within:  2 * time.Minute,
	}
}

// containerName is also the name of the volume. It differs between the stacks of one Docker engine.
func (s *Stack) containerName() string {
	sum := sha256.Sum256([]byte(s.cfg.Dir))
	return "lockstep-stack-" + hex.EncodeToString(sum[:4])
}

// dockerPossible requires a running engine and the image. It pulls the image if the engine does not have it.
func (s *Stack) dockerPossible(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("docker"); err != nil {
		return "", errors.New("no docker on the PATH")
	}
	if err := docker(ctx, dockerWithin, "info", "--format", "{{.ServerVersion}}"); err != nil {
		return "", fmt.Errorf("no Docker engine answers (%w)", err)
	}
	image := s.cfg.MongoImage
	if err := docker(ctx, dockerWithin, "image", "inspect", "--format", "{{.Id}}", image); err == nil {
		return "the Docker engine has the image " + image, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pullWithin, fmt.Errorf("it took more than %s", pullWithin))
	defer cancel()
	log := s.logFile("docker-pull")
	err := s.task("pull the image "+image, func() error {
		return step{argv: []string{"docker", "pull", image}, dir: s.cfg.Dir, log: log}.run(ctx)
	})
	if err != nil {
		return "", fmt.Errorf("the Docker engine has no image %s and cannot pull it: %s (%w)", image, lastLine(tail(log)), err)
	}
	return "the Docker engine has pulled the image " + image, nil
}

// removeContainer removes a container. It continues to run if its foreground process was killed.
func removeContainer(ctx context.Context, name string) error {
	err := docker(ctx, removeWithin, "rm", "--force", name)
	if err == nil || strings.Contains(err.Error(), "No such container") {
		return nil
	}
	if engineRuns := docker(ctx, dockerWithin, "info") == nil; !engineRuns {
		return nil // without an engine no container runs
	}
	return fmt.Errorf("remove the container %s: %w", name, err)
}

// docker runs a short command. Its error is the last line of the output.
func docker(ctx context.Context, within time.Duration, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("docker %s: no answer within %s", args[0], within)
	}
	if err != nil {
		return fmt.Errorf("docker %s: %s", args[0], lastLine(string(out)))
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

func directURI(port int) string { return "mongodb://" + hostPort(port) + "/?directConnection=true" }

func mongoAnswers(ctx context.Context, ports map[string]int) error {
	return mongoHealthy(ctx, directURI(ports["mongo"]))
}

// mongoHealthy pings the member to which a client would write.
func mongoHealthy(ctx context.Context, uri string) error {
	return withMongo(ctx, uri, func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
	})
}

// withMongo connects to the admin database for one call.
func withMongo(ctx context.Context, uri string, call func(admin *mongo.Database) error) error {
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer c.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	return call(c.Database("admin"))
}
