package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
	"github.com/temporal-lockstep/lockstep/internal/tools/bench/contended/measure"
	"github.com/temporal-lockstep/lockstep/internal/tools/stack"
)

// startWithin bounds the start of a server, and endWithin its end.
const (
	startWithin = 30 * time.Second
	endWithin   = 10 * time.Second
)

// servers are the servers of a run.
type servers struct {
	env
	// dir is the temporary folder of the started servers.
	dir       string
	processes []*harness.Process
	// pids has the main processes of each server, as far as they are known, to count their processor time.
	pids map[string][]int
	// versions are for the report.
	versions []string
}

// debianServer is a server that Debian has.
type debianServer struct {
	name, program, pkg string
	start              func(s *servers, ctx context.Context, program string) error
}

var debianServers = []debianServer{
	{redisServer, "redis-server", "redis-server", (*servers).startRedis},
	{etcdServer, "etcd", "etcd-server", (*servers).startEtcd},
	{postgresServer, "/usr/lib/postgresql/*/bin/postgres", "postgresql", (*servers).startPostgres},
}

// find returns the path of the program, the latest if there are several, or "".
func (d debianServer) find() string {
	if found, _ := filepath.Glob(d.program); len(found) > 0 {
		return found[len(found)-1]
	}
	path, _ := exec.LookPath(d.program) // "" if there is none
	return path
}

// startServers starts the wanted servers, installs what is missing, and returns when they answer. close ends them, also after an error.
func startServers(ctx context.Context, wanted map[string]bool) (s *servers, err error) {
	s = &servers{pids: map[string][]int{}}
	// PostgreSQL runs as another user.
	if s.dir, err = os.MkdirTemp("", "lockstep-compare-"); err != nil {
		return s, err
	}
	if err := os.Chmod(s.dir, 0o711); err != nil { //nolint:gosec // only names of folders can be guessed
		return s, err
	}
	var missing []string
	for _, d := range debianServers {
		if wanted[d.name] && d.find() == "" {
			missing = append(missing, d.pkg)
		}
	}
	if err := install(ctx, missing); err != nil {
		return s, err
	}
	for _, d := range debianServers {
		if !wanted[d.name] {
			continue
		}
		program := d.find()
		if err := d.start(s, ctx, program); err != nil {
			return s, fmt.Errorf("start %s: %w", d.name, err)
		}
		out, err := exec.CommandContext(ctx, program, "--version").Output() //nolint:gosec // found above
		if err != nil {
			return s, err
		}
		s.versions = append(s.versions, d.name+" "+string(regexp.MustCompile(`\d+(\.\d+)+`).Find(out)))
	}
	return s, s.useStack(ctx, wanted)
}

// install installs Debian's packages.
func install(ctx context.Context, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("these Debian packages are missing; install them as root: apt-get install %s", strings.Join(packages, " "))
	}
	fmt.Fprintln(os.Stderr, "compare: installing", strings.Join(packages, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...) //nolint:gosec // names from this file
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

// startRedis makes every write durable. Redis' page on distributed locks asks for that: otherwise a restart loses locks.
func (s *servers) startRedis(ctx context.Context, program string) error {
	port, dir, err := s.place(redisServer)
	if err != nil {
		return err
	}
	s.Redis = hostPort(port)
	return s.launch(ctx, redisServer, nil, func(context.Context) error { return dials(s.Redis) },
		program, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
}

// startEtcd starts a cluster of one with the defaults: every write is synced to the disk.
func (s *servers) startEtcd(ctx context.Context, program string) error {
	port, dir, err := s.place(etcdServer)
	if err != nil {
		return err
	}
	peer, err := freePort()
	if err != nil {
		return err
	}
	s.Etcd = hostPort(port)
	url, peerURL := "http://"+s.Etcd, "http://"+hostPort(peer)
	return s.launch(ctx, etcdServer, nil, func(context.Context) error { return dials(s.Etcd) },
		program, "--name", "compare", "--data-dir", dir, "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL, "--initial-cluster", "compare="+peerURL)
}

// startPostgres starts PostgreSQL with the defaults for durability. It refuses root, so it runs as Debian's user postgres.
func (s *servers) startPostgres(ctx context.Context, program string) error {
	port, dir, err := s.place(postgresServer)
	if err != nil {
		return err
	}
	var owner *syscall.Credential
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // IDs of users
		if err := os.Chown(dir, uid, gid); err != nil {
			return err
		}
	}
	initdb := exec.CommandContext(ctx, filepath.Join(filepath.Dir(program), "initdb"), "-D", dir, "-U", "postgres", "--auth=trust") //nolint:gosec // in the folder of postgres
	initdb.SysProcAttr, initdb.Dir = &syscall.SysProcAttr{Credential: owner}, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	s.Postgres = "postgres://postgres@" + hostPort(port) + "/postgres?sslmode=disable"
	answers := func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, s.Postgres)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
	return s.launch(ctx, postgresServer, owner, answers,
		program, "-D", dir, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=320")
}

// useStack adds MongoDB and Temporal, which the environment names. The local stack's record has their processes.
func (s *servers) useStack(ctx context.Context, wanted map[string]bool) error {
	s.Mongo, s.Temporal = os.Getenv("LOCKSTEP_MONGODB_URI"), os.Getenv("TEMPORAL_ADDRESS")
	if wanted[mongoServer] && s.Mongo == "" || wanted[temporalServer] && s.Temporal == "" {
		return errors.New(`LOCKSTEP_MONGODB_URI or TEMPORAL_ADDRESS is not set: start the servers with "make stack-up", then eval "$(make -s stack-env)"`)
	}
	s.Database = fmt.Sprintf("lockstep_compare_%d", time.Now().UnixNano())
	if wanted[mongoServer] {
		version, err := s.mongoVersion(ctx)
		if err != nil {
			return err
		}
		s.versions = append(s.versions, version)
	}
	if wanted[temporalServer] {
		c, err := client.Dial(client.Options{HostPort: s.Temporal})
		if err != nil {
			return err
		}
		defer c.Close()
		info, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
		if err != nil {
			return err
		}
		s.versions = append(s.versions, "temporal "+info.GetServerVersion())
	}
	cfg, err := stack.ConfigFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	record, err := stack.New(cfg, nil).Record()
	if err != nil {
		return err
	}
	for _, p := range record.Parts {
		switch {
		case p.PID == 0 || p.Container != "": // the processor time is not known
		case p.Name == temporalServer && record.Temporal.Address == s.Temporal:
			s.pids[temporalServer] = append(s.pids[temporalServer], p.PID)
		case p.Name != temporalServer && record.Mongo.Address == s.Mongo:
			s.pids[mongoServer] = append(s.pids[mongoServer], p.PID)
		}
	}
	return nil
}

func (s *servers) mongoVersion(ctx context.Context) (string, error) {
	c, err := openMongo(ctx, s.counted())
	if err != nil {
		return "", err
	}
	defer func() { _ = c.close(ctx) }()
	var info struct {
		Version  string
		FerretDB struct{ Version string } `bson:"ferretdb"`
	}
	err = c.db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info)
	if info.FerretDB.Version != "" {
		return "FerretDB " + info.FerretDB.Version, err
	}
	return "mongo " + info.Version, err
}

// counted returns the env with a counter of its own.
func (s *servers) counted() env {
	e := s.env
	e.sent = new(atomic.Int64)
	return e
}

// place returns a free port and a new folder.
func (s *servers) place(name string) (port, dir string, err error) {
	dir = filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", "", err
	}
	port, err = freePort()
	return port, dir, err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", hostPort("0")) //nolint:noctx // it does not wait
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func hostPort(port string) string { return net.JoinHostPort("127.0.0.1", port) }

func dials(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second) //nolint:noctx // it has a bound
	if err != nil {
		return err
	}
	return conn.Close()
}

// launch starts a program and returns when it answers. The program ends with this one.
func (s *servers) launch(ctx context.Context, name string, owner *syscall.Credential, answers func(context.Context) error, argv ...string) error {
	server, err := harness.Start(ctx, harness.Command{
		Name: name, Program: argv[0], Args: argv[1:], Output: filepath.Join(s.dir, name+".log"), Silent: true,
		Change: func(c *exec.Cmd) { c.Stdout, c.Dir, c.SysProcAttr.Credential = c.Stderr, s.dir, owner },
	})
	if err != nil {
		return err
	}
	s.processes, s.pids[name] = append(s.processes, server), []int{server.PID()}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		answer := answers(ctx)
		if answer == nil {
			return nil
		}
		if err := measure.Pause(ctx, 50*time.Millisecond); err != nil {
			text, _ := os.ReadFile(server.Output) // the answer is enough without it
			return fmt.Errorf("it does not answer: %w\n%s", errors.Join(answer, err), text)
		}
	}
}

// close ends the servers that were started, and removes their data.
func (s *servers) close(ctx context.Context) error {
	var errs []error
	if s.Database != "" && s.Mongo != "" {
		c, err := openMongo(ctx, s.counted())
		if err == nil {
			err = errors.Join(c.db.Drop(ctx), c.close(ctx))
		}
		errs = append(errs, err)
	}
	for _, server := range s.processes {
		// On SIGTERM, PostgreSQL would wait for its clients.
		if err := server.Signal(os.Interrupt); err != nil && !errors.Is(err, harness.ErrEnded) {
			errs = append(errs, err)
		}
		_ = server.Quit(endWithin) // whichever way it ends
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
