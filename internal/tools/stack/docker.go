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

	"github.com/temporal-lockstep/lockstep/internal/tools/stack/replicaset"
)

const (
	dockerWithin = 10 * time.Second
	// pullWithin bounds the pull of an image of some 300 MB: a registry that does not answer must not hold up the
	// other choices for ever.
	pullWithin   = 5 * time.Minute
	removeWithin = 30 * time.Second
)

// dockerPossible asks for a running engine and for the image, which is pulled if the engine has none.
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
	task := s.progress.start("pull the image " + image)
	log := filepath.Join(s.cfg.Dir, "logs", "docker-pull.log")
	err := step{argv: []string{"docker", "pull", image}, dir: s.cfg.Dir, log: log, task: task}.run(ctx)
	task.end(err)
	if err != nil {
		lines := strings.Split(tail(log), "\n")
		return "", fmt.Errorf("the Docker engine has no image %s and cannot pull it: %s (%w)",
			image, strings.TrimSpace(lines[len(lines)-1]), err)
	}
	return "the Docker engine has pulled the image " + image, nil
}

func (s *Stack) dockerMongo(ctx context.Context) (Endpoint, error) {
	p, _, err := s.ensure(ctx, s.dockerService())
	if err != nil {
		return Endpoint{}, err
	}
	return initiate(ctx, p.Ports["mongo"])
}

// dockerService runs the container in the foreground of a process of ours, so that its output is a log like the others'
// and its end is noticed. The server listens on the same port inside and outside: a replica set member must find itself
// under the address that its clients use.
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
		healthy: func(ctx context.Context, ports map[string]int) error {
			return mongoHealthy(ctx, directURI(ports["mongo"]))
		},
		within: 2 * time.Minute,
	}
}

// containerName also names the volume. It tells the stacks of one engine apart.
func (s *Stack) containerName() string {
	sum := sha256.Sum256([]byte(s.cfg.Dir))
	return "lockstep-stack-" + hex.EncodeToString(sum[:4])
}

// removeContainer ends a container whose process here was killed, which leaves it running.
func removeContainer(ctx context.Context, name string) error {
	err := docker(ctx, removeWithin, "rm", "--force", name)
	if err == nil || strings.Contains(err.Error(), "No such container") {
		return nil
	}
	if engineRuns := docker(ctx, dockerWithin, "info") == nil; !engineRuns {
		return nil // and so no container does
	}
	return fmt.Errorf("remove the container %s: %w", name, err)
}

// docker runs a short command and returns what it complained of.
func docker(ctx context.Context, within time.Duration, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("docker %s: no answer within %s", args[0], within)
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("docker %s: %s", args[0], lines[len(lines)-1])
	}
	return nil
}
