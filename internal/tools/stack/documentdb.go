package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	ferretPackage = "github.com/FerretDB/FerretDB/v2/cmd/ferretdb"
	ferretVersion = "v2.7.0"
)

// host is what the DocumentDB recipe asks of the machine.
type host struct {
	os  string // as in GOOS
	id  string // the ID of os-release
	uid int
	// mounts is false where root may not mount, as in most containers.
	mounts bool
}

func machine(ctx context.Context) host {
	h := host{os: runtime.GOOS, uid: os.Geteuid()}
	h.mounts = exec.CommandContext(ctx, "unshare", "--mount", "true").Run() == nil
	f, err := os.Open("/etc/os-release")
	if err != nil {
		return h
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "ID="); ok {
			h.id = strings.Trim(id, `"'`)
		}
	}
	return h
}

func documentDBPossible(h host) (string, error) {
	switch {
	case h.os != "linux":
		return "", fmt.Errorf("it needs Debian, and this is %s", h.os)
	case h.id != "debian":
		return "", fmt.Errorf("it needs Debian, and this is %q", h.id)
	case h.uid != 0:
		return "", fmt.Errorf("it needs root, and this is user %d", h.uid)
	case !h.mounts:
		return "", errors.New("it needs the right to mount, which root does not have here (in a container: --privileged)")
	}
	return "this is Debian and we are root: FerretDB on PostgreSQL with DocumentDB", nil
}

// documentDB makes and starts the MongoDB-compatible pair: PostgreSQL with the DocumentDB extension, which does the
// work, and FerretDB in front of it, which speaks the protocol.
func (s *Stack) documentDB(ctx context.Context) (Endpoint, error) {
	var program string
	var postgres Part
	var restarted bool
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		program, err = s.goTool(gctx, ferretPackage, ferretVersion)
		return err
	})
	g.Go(func() (err error) {
		postgres, restarted, err = s.startPostgres(gctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return Endpoint{}, err
	}
	if p, ok := s.recorded("ferretdb"); ok && restarted {
		// It may know PostgreSQL by another port, and its connections are gone in any case.
		if err := s.end(ctx, p); err != nil {
			return Endpoint{}, err
		}
	}
	p, _, err := s.ensure(ctx, s.ferretService(program, postgres))
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{Address: "mongodb://" + hostPort(p.Ports["mongo"]) + "/"}, nil
}

func (s *Stack) ferretService(program string, postgres Part) service {
	engine := url.URL{
		Scheme: "postgres",
		User:   url.User("postgres"),
		Host:   hostPort(postgres.Ports["postgres"]),
		Path:   "postgres",
		// Half of what PostgreSQL admits, so that a load test is not throttled by the pool (which defaults to 50).
		RawQuery: fmt.Sprintf("pool_max_conns=%d", postgresConnections/2),
	}
	return service{
		name:  "ferretdb",
		ports: []string{"mongo"},
		argv: func(ports map[string]int) []string {
			return []string{
				program,
				"--no-auth",
				"--telemetry=disable",
				"--debug-addr=-",
				"--log-level=WARN",
				"--state-dir=" + filepath.Join(s.cfg.Dir, "data", "ferretdb"),
				"--listen-addr=" + hostPort(ports["mongo"]),
				"--postgresql-url=" + engine.String(),
			}
		},
		healthy: func(ctx context.Context, ports map[string]int) error {
			return mongoHealthy(ctx, directURI(ports["mongo"]))
		},
		within: time.Minute,
	}
}

// startPostgres returns the engine with the extension in it.
func (s *Stack) startPostgres(ctx context.Context) (p Part, started bool, err error) {
	root, err := s.postgresRoot(ctx)
	if err != nil {
		return Part{}, false, err
	}
	if err := s.initCluster(ctx, root); err != nil {
		return Part{}, false, err
	}
	p, started, err = s.ensure(ctx, s.postgresService(root))
	if err != nil || !started {
		return p, started, err
	}
	out, err := psql(ctx, root, p.Ports["postgres"], "CREATE EXTENSION IF NOT EXISTS documentdb CASCADE")
	if err != nil {
		return Part{}, false, fmt.Errorf("create the extension documentdb: %w: %s", err, out)
	}
	return p, started, nil
}
