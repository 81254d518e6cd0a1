package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const (
	// postgresPackage is PostgreSQL with the DocumentDB extension. Debian has it from this suite on, so it is unpacked
	// into a root of its own, whatever release the machine runs.
	postgresPackage = "postgresql-18-documentdb"
	postgresSuite   = "forky"
	// debootstrapScript serves every suite after the ones that debootstrap knows by name.
	debootstrapScript = "sid"
)

// postgresRoot returns a small Debian root with PostgreSQL in it, made by debootstrap if the cache has none.
func (s *Stack) postgresRoot(ctx context.Context) (string, error) {
	target := filepath.Join(s.cfg.CacheDir, postgresPackage)
	err := s.cached(ctx, target, func(ctx context.Context, tmp string, t *task) error {
		if err := s.installDebootstrap(ctx, t); err != nil {
			return err
		}
		root, packages := filepath.Join(tmp, "root"), filepath.Join(s.cfg.CacheDir, "packages")
		// Packages outlive a failed attempt, so that the next one need not download them again.
		if err := errors.Join(os.MkdirAll(root, 0o755), os.MkdirAll(packages, 0o755)); err != nil {
			return err
		}
		err := step{
			// In namespaces of its own it leaves neither mounts nor processes behind, however it ends.
			argv: []string{
				"unshare", "--mount", "--pid", "--fork", "--kill-child",
				"debootstrap", "--variant=minbase", "--cache-dir=" + packages,
				"--include=" + postgresPackage + ",ca-certificates",
				postgresSuite, root, "", debootstrapScript,
			},
			dir:    tmp,
			env:    []string{"DEBIAN_FRONTEND=noninteractive"},
			log:    s.rootLog(),
			signal: syscall.SIGKILL,
			task:   t,
		}.run(ctx)
		if err != nil {
			return err
		}
		if err := slim(root); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "chroot", root, postgresBin+"postgres", "--version").CombinedOutput(); err != nil {
			return fmt.Errorf("the new PostgreSQL does not run: %w: %s", err, out)
		}
		return errors.Join(os.RemoveAll(packages), os.Rename(root, target))
	})
	return target, err
}

func (s *Stack) rootLog() string { return filepath.Join(s.cfg.Dir, "logs", "build-postgres.log") }

// installDebootstrap asks apt for debootstrap if it is missing.
func (s *Stack) installDebootstrap(ctx context.Context, t *task) error {
	if _, err := exec.LookPath("debootstrap"); err == nil {
		return nil
	}
	apt := func(args ...string) error {
		return step{
			// Another apt may be at work; a minute is what an installation by hand takes.
			argv: append([]string{"apt-get", "--option", "DPkg::Lock::Timeout=60"}, args...),
			dir:  s.cfg.Dir,
			env:  []string{"DEBIAN_FRONTEND=noninteractive"},
			log:  s.rootLog(),
			task: t,
		}.run(ctx)
	}
	// One of many sources that does not answer fails the update, and says nothing about the package that is wanted.
	updated := apt("update")
	if err := apt("install", "--yes", "--no-install-recommends", "debootstrap"); err != nil {
		return errors.Join(updated, err)
	}
	return nil
}

// slim takes away what was only needed to make the root: the packages, and a database cluster that Debian makes for a
// system service.
func slim(root string) error {
	for _, dir := range []string{"var/cache/apt/archives", "var/lib/apt/lists", "var/lib/postgresql", "usr/share/doc"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	return nil
}
