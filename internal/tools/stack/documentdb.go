package stack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	ferretPackage = "github.com/FerretDB/FerretDB/v2/cmd/ferretdb"
	ferretVersion = "v2.7.0"

	// postgresPackage is Debian's package of PostgreSQL with the DocumentDB extension. It exists from postgresSuite on. It is
	// unpacked into a root of its own, so the machine may have an older release.
	postgresPackage = "postgresql-18-documentdb"
	postgresSuite   = "forky"
	postgresBin     = "/usr/lib/postgresql/18/bin/"
	// postgresConnections is twice FerretDB's pool. An open connection takes a few MB.
	postgresConnections = 300
	// clusterParent is the mount point of the stack's data folder in the root, which all stacks share.
	clusterParent = "/srv"
)

var debian = regexp.MustCompile(`(?m)^ID=["']?debian`)

// documentDBPossible requires Debian, and root with the right to mount.
func documentDBPossible(ctx context.Context) (string, error) {
	release, _ := os.ReadFile("/etc/os-release") // without the file this is not Debian
	switch {
	case !debian.Match(release):
		return "", errors.New("it needs Debian")
	case os.Geteuid() != 0:
		return "", fmt.Errorf("it needs root, and this is user %d", os.Geteuid())
	case exec.CommandContext(ctx, "unshare", "--mount", "true").Run() != nil:
		return "", errors.New("it needs the right to mount, which root does not have here (in a container: --privileged)")
	}
	return "this is Debian and the user is root: FerretDB on PostgreSQL with DocumentDB", nil
}

// documentDB builds and starts PostgreSQL with the DocumentDB extension, and FerretDB, which translates MongoDB's protocol.
func (s *Stack) documentDB(ctx context.Context) (Endpoint, error) {
	var program string
	var postgres Part
	var restarted bool
	g, groupCtx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		program, err = s.goTool(groupCtx, ferretPackage, ferretVersion)
		return err
	})
	g.Go(func() (err error) {
		postgres, restarted, err = s.startPostgres(groupCtx)
		return err
	})
	if err := g.Wait(); err != nil {
		return Endpoint{}, err
	}
	if p, ok := s.recorded("ferretdb"); ok && restarted {
		// Its connections are broken, and PostgreSQL's port may have changed.
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
	database := url.URL{
		Scheme: "postgres",
		User:   url.User("postgres"),
		Host:   hostPort(postgres.Ports["postgres"]),
		Path:   "postgres",
		// The default of 50 throttles load tests.
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
				"--postgresql-url=" + database.String(),
			}
		},
		healthy: mongoAnswers,
		within:  time.Minute,
	}
}

// startPostgres starts PostgreSQL and creates the extension.
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
	if err := psql(ctx, root, p.Ports["postgres"], "CREATE EXTENSION IF NOT EXISTS documentdb CASCADE"); err != nil {
		return Part{}, false, fmt.Errorf("create the extension documentdb: %w", err)
	}
	return p, started, nil
}

// postgresRoot returns a folder with PostgreSQL and what it needs of Debian, unless the cache has it. The packages are only unpacked: their
// scripts would take four times as long, and PostgreSQL needs none of them.
func (s *Stack) postgresRoot(ctx context.Context) (string, error) {
	target := filepath.Join(s.cfg.CacheDir, postgresPackage)
	err := s.cached(ctx, target, func(ctx context.Context, tmp string) error {
		if err := s.installMmdebstrap(ctx); err != nil {
			return err
		}
		root := filepath.Join(tmp, "root")
		err := step{
			// In its own namespaces, it leaves no mounts and no processes behind.
			argv: []string{
				"unshare", "--mount", "--pid", "--fork", "--kill-child",
				"mmdebstrap", "--mode=root", "--variant=extract", "--include=" + postgresPackage + ",base-files,dash,libc-bin",
				// Mirrors of a suite that is not released yet may be weeks old. Signatures are checked.
				"--aptopt=Acquire::Check-Valid-Until \"false\"", "--aptopt=Acquire::Retries \"3\"",
				postgresSuite, root,
			},
			dir: tmp,
			env: []string{"DEBIAN_FRONTEND=noninteractive"},
			log: s.logFile("build-postgres"),
		}.run(ctx)
		if err != nil {
			return err
		}
		if err := completeRoot(root); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "chroot", root, postgresBin+"postgres", "--version").CombinedOutput(); err != nil {
			return fmt.Errorf("the new PostgreSQL does not run: %w: %s", err, out)
		}
		return os.Rename(root, target)
	})
	return target, err
}

// completeRoot adds what an installation would make: users, the address of this machine, a mount point, and the name of an extension that
// DocumentDB needs.
func completeRoot(root string) error {
	users := "root:x:0:0:root:/:/bin/sh\npostgres:x:101:101:PostgreSQL:" + clusterParent + ":/bin/sh\n"
	return errors.Join(
		os.WriteFile(filepath.Join(root, "etc", "hosts"), []byte(loopback+" localhost\n"), 0o644),        //nolint:gosec // as Debian has it
		os.WriteFile(filepath.Join(root, "etc", "passwd"), []byte(users), 0o644),                         //nolint:gosec // as Debian has it
		os.WriteFile(filepath.Join(root, "etc", "group"), []byte("root:x:0:\npostgres:x:101:\n"), 0o644), //nolint:gosec // as Debian has it
		os.MkdirAll(filepath.Join(root, clusterParent), 0o755),
		os.Symlink("postgis-3.control", filepath.Join(root, "usr", "share", "postgresql", "18", "extension", "postgis.control")),
		os.RemoveAll(filepath.Join(root, "usr", "share", "doc")),
	)
}

func (s *Stack) installMmdebstrap(ctx context.Context) error {
	if _, err := exec.LookPath("mmdebstrap"); err == nil {
		return nil
	}
	apt := step{
		// Another apt may hold the lock.
		argv: []string{"apt-get", "--option", "DPkg::Lock::Timeout=60", "update"},
		dir:  s.cfg.Dir,
		env:  []string{"DEBIAN_FRONTEND=noninteractive"},
		log:  s.logFile("build-postgres"),
	}
	// The update fails if any of its sources fails, although the package may be available.
	updated := apt.run(ctx)
	apt.argv = append(apt.argv[:3], "install", "--yes", "--no-install-recommends", "mmdebstrap")
	if err := apt.run(ctx); err != nil {
		return errors.Join(updated, err)
	}
	return nil
}

// inRoot runs a program as the user postgres in the root, in a mount namespace of its own. The mounts end with its last process,
// even after SIGKILL. Each program replaces the previous one, so the recorded PID is PostgreSQL's.
//
// PostgreSQL does not start if any process has the PID in the lock file of one that was killed, so a PID that cannot exist replaces
// it. PostgreSQL's other protection, the shared memory that the file names, remains.
const inRoot = `
root=$1 data=$2
shift 2
[ ! -f "$data/cluster/postmaster.pid" ] || sed -i '1s/.*/2147483647/' "$data/cluster/postmaster.pid"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$data" "$root` + clusterParent + `"
chown "$(sed -n 's/^postgres:[^:]*:\([0-9]*:[0-9]*\):.*/\1/p' "$root/etc/passwd")" "$root` + clusterParent + `"
exec chroot --userspec=postgres:postgres "$root" "$@"
`

func (s *Stack) inRoot(root string, argv ...string) []string {
	return append([]string{"unshare", "--mount", "/bin/sh", "-euc", inRoot, "sh", root, s.postgresData()}, argv...)
}

func (s *Stack) postgresData() string { return filepath.Join(s.cfg.Dir, "data", "postgres") }

// initCluster creates the database's files, unless they exist.
func (s *Stack) initCluster(ctx context.Context, root string) error {
	data := s.postgresData()
	cluster, partial := filepath.Join(data, "cluster"), filepath.Join(data, "partial")
	if exists(cluster) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(data, 0o755)); err != nil {
		return err
	}
	initdb := step{
		// No password is acceptable for a temporary database that listens on the loopback interface only.
		argv: s.inRoot(root, postgresBin+"initdb", "--pgdata="+clusterParent+"/partial", "--username=postgres",
			"--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"),
		dir: data,
		log: s.logFile("initdb"),
	}
	if err := s.task("initialise PostgreSQL", func() error { return initdb.run(ctx) }); err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	return os.Rename(partial, cluster)
}

func (s *Stack) postgresService(root string) service {
	return service{
		name:  "postgres",
		ports: []string{"postgres"},
		argv: func(ports map[string]int) []string {
			argv := []string{postgresBin + "postgres", "-D", clusterParent + "/cluster"}
			// Settings on the command line also apply to data of an older version of this program.
			for _, setting := range []string{
				"listen_addresses=" + loopback,
				"port=" + strconv.Itoa(ports["postgres"]),
				// Stacks share the root, so socket files would collide.
				"unix_socket_directories=",
				"max_connections=" + strconv.Itoa(postgresConnections),
				"shared_buffers=256MB",
				"shared_preload_libraries=pg_cron,pg_documentdb_core,pg_documentdb",
				"cron.database_name=postgres",
				// pg_cron builds indexes. It would connect to "localhost", which the root may not be able to resolve.
				"cron.host=" + loopback,
				// A lock is one row that changes thousands of times. With the default of a minute, its dead versions slow it down.
				"autovacuum_naptime=10s",
			} {
				argv = append(argv, "-c", setting)
			}
			return s.inRoot(root, argv...)
		},
		healthy: func(ctx context.Context, ports map[string]int) error {
			return psql(ctx, root, ports["postgres"], "SELECT 1")
		},
		within: time.Minute,
	}
}

// psql runs one statement. Its error contains the output.
func psql(ctx context.Context, root string, port int, sql string) error {
	out, err := exec.CommandContext(ctx, "chroot", "--userspec=postgres:postgres", root,
		postgresBin+"psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
		"--host="+loopback, "--port="+strconv.Itoa(port), "--username=postgres", "--dbname=postgres",
		"--command="+sql).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
