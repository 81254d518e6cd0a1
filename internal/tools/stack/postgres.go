package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	postgresBin = "/usr/lib/postgresql/18/bin/"
	// postgresConnections is far above what FerretDB's pool asks for; each one that is open costs a few MB.
	postgresConnections = 300
	// clusterParent is where the stack's own data folder appears inside the root, which many stacks may share.
	clusterParent = "/srv"
	cluster       = clusterParent + "/cluster"
)

// inRoot runs its arguments as the user postgres inside the root, in a mount namespace of its own: what is mounted
// there is seen by no other process and goes with the last process, even after a SIGKILL. Each program replaces the one
// before, so the process that is started is the one that is recorded.
const inRoot = `
root=$1 data=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$data" "$root` + clusterParent + `"
chown "$(sed -n 's/^postgres:[^:]*:\([0-9]*:[0-9]*\):.*/\1/p' "$root/etc/passwd")" "$root` + clusterParent + `"
exec chroot --userspec=postgres:postgres "$root" "$@"
`

func (s *Stack) inRoot(root string, argv ...string) []string {
	data := filepath.Join(s.cfg.Dir, "data", "postgres")
	return append([]string{"unshare", "--mount", "/bin/sh", "-euc", inRoot, "sh", root, data}, argv...)
}

// initCluster makes the database's files once per stack, under another name until they are whole.
func (s *Stack) initCluster(ctx context.Context, root string) error {
	data := filepath.Join(s.cfg.Dir, "data", "postgres")
	whole, partial := filepath.Join(data, filepath.Base(cluster)), filepath.Join(data, "partial")
	if exists(whole) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(data, 0o755)); err != nil {
		return err
	}
	task := s.progress.start("initialise PostgreSQL")
	err := step{
		// Trust is for a throw-away database that only listens on the loopback interface.
		argv: s.inRoot(root, postgresBin+"initdb", "--pgdata="+clusterParent+"/partial", "--username=postgres",
			"--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"),
		dir:    data,
		log:    filepath.Join(s.cfg.Dir, "logs", "initdb.log"),
		signal: syscall.SIGTERM,
		task:   task,
	}.run(ctx)
	task.end(err)
	if err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	return os.Rename(partial, whole)
}

func (s *Stack) postgresService(root string) service {
	return service{
		name:      "postgres",
		ports:     []string{"postgres"},
		interrupt: true,
		before: func() error {
			return disownPID(filepath.Join(s.cfg.Dir, "data", "postgres", "cluster", "postmaster.pid"))
		},
		argv: func(ports map[string]int) []string {
			argv := []string{postgresBin + "postgres", "-D", cluster}
			for _, setting := range postgresSettings(ports["postgres"]) {
				argv = append(argv, "-c", setting)
			}
			return s.inRoot(root, argv...)
		},
		healthy: func(ctx context.Context, ports map[string]int) error {
			out, err := psql(ctx, root, ports["postgres"], "SELECT 1")
			if err != nil {
				return fmt.Errorf("%w: %s", err, strings.TrimSpace(out))
			}
			return nil
		},
		within: time.Minute,
	}
}

// postgresSettings are on the command line, so that a stack made by an older version of this program gets them too.
func postgresSettings(port int) []string {
	return []string{
		"listen_addresses=" + loopback,
		"port=" + strconv.Itoa(port),
		// Sockets would meet those of other stacks in the shared root.
		"unix_socket_directories=",
		"max_connections=" + strconv.Itoa(postgresConnections),
		"shared_buffers=256MB",
		"shared_preload_libraries=pg_cron,pg_documentdb_core,pg_documentdb",
		"cron.database_name=postgres",
		// Jobs of pg_cron, which build indexes, would otherwise connect to "localhost", a name that the root may not know.
		"cron.host=" + loopback,
		// A lock is one row that is rewritten thousands of times: cleaned up once a minute, it would get slower all the while.
		"autovacuum_naptime=10s",
	}
}

// disownPID makes the lock file of a PostgreSQL that was killed name a process that cannot exist. Where the PID is still
// taken, by what has not been collected yet or by a stranger, PostgreSQL takes that for itself and refuses to start. Its
// other guard, the shared memory named in the same file, stays.
func disownPID(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(data), "\n")
	return os.WriteFile(path, []byte(strconv.Itoa(math.MaxInt32)+"\n"+rest), 0o600)
}

// psql asks one question. It needs nothing mounted.
func psql(ctx context.Context, root string, port int, sql string) (string, error) {
	out, err := exec.CommandContext(ctx, "chroot", "--userspec=postgres:postgres", root,
		postgresBin+"psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
		"--host="+loopback, "--port="+strconv.Itoa(port), "--username=postgres", "--dbname=postgres",
		"--command="+sql).CombinedOutput()
	return string(out), err
}
