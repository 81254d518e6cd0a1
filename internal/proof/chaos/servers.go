package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/temporal-lockstep/lockstep/internal/tools/stack"
)

// servers are the database and Temporal of a run. Servers of the program's own stack can be restarted; given ones cannot.
type servers struct {
	mongo, temporal string // host and port
	// own is nil if the environment names the servers.
	own *stack.Stack

	mu sync.Mutex // one restart at a time: Up would start what another restart keeps down
}

// openServers uses the servers that the environment names, or starts a stack in LOCKSTEP_STACK_DIR, or else in a folder of its own.
func openServers(ctx context.Context) (*servers, error) {
	uri, temporal := os.Getenv("LOCKSTEP_MONGODB_URI"), os.Getenv("TEMPORAL_ADDRESS")
	if uri != "" && temporal != "" {
		host, err := hostOf(uri)
		return &servers{mongo: host, temporal: temporal}, err
	}
	if uri != "" || temporal != "" {
		return nil, errors.New("set both LOCKSTEP_MONGODB_URI and TEMPORAL_ADDRESS, or none to start servers that can be restarted")
	}
	cfg, err := stack.ConfigFromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	if os.Getenv("LOCKSTEP_STACK_DIR") == "" {
		cfg.Dir = filepath.Join(filepath.Dir(cfg.Dir), "chaos-stack") // never the developer's own servers
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "logs"), 0o755); err != nil { //nolint:gosec // the database runs as another user
		return nil, err
	}
	progress, err := os.OpenFile(filepath.Join(cfg.Dir, "logs", "chaos.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	s := &servers{own: stack.New(cfg, log.New(io.MultiWriter(progress), "", log.LstdFlags))}
	if err := s.own.Up(ctx); err != nil {
		return nil, err
	}
	record, err := s.own.Record()
	if err != nil {
		return nil, err
	}
	s.temporal = record.Temporal.Address
	s.mongo, err = hostOf(record.Mongo.Address)
	return s, err
}

func hostOf(uri string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" || strings.Contains(u.Host, ",") || u.User != nil {
		return "", fmt.Errorf("the program needs the URI of one server without credentials: %q", uri)
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Host, "27017"), nil
	}
	return u.Host, nil
}

// close ends the servers that the program has started.
func (s *servers) close(ctx context.Context) error {
	if s.own == nil {
		return nil
	}
	return s.own.Down(context.WithoutCancel(ctx))
}

// can reports whether a kind of fault is possible with these servers.
func (s *servers) can(kind Kind) bool {
	if kind != DatabaseRestart && kind != TemporalRestart {
		return true
	}
	return s.own != nil && len(s.parts(&Fault{Kind: kind, Twice: true})) > 0
}

// parts returns the processes that a restart kills, if they run here.
func (s *servers) parts(f *Fault) (names []string) {
	record, err := s.own.Record()
	if err != nil {
		return nil
	}
	for _, p := range record.Parts {
		switch {
		case p.Container != "" || f.Kind == TemporalRestart != (p.Name == "temporal"):
		case p.Name == "postgres" && !f.Twice: // only the server that translates
		default:
			names = append(names, p.Name)
		}
	}
	return names
}

// restart kills the processes of a server, and starts them again on the same ports. It returns what was seen.
func (s *servers) restart(ctx context.Context, f *Fault) (seen string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.own.Record()
	if err != nil {
		return "", err
	}
	names := s.parts(f)
	if err := s.own.Kill(ctx, names...); err != nil {
		return "", err
	}
	address := s.mongo
	if f.Kind == TemporalRestart {
		address = s.temporal
	}
	refused := refuses(address)
	pause(ctx, f.For)
	began := time.Now()
	if err := s.own.Up(ctx); err != nil {
		return "", err
	}
	after, err := s.own.Record()
	if err != nil {
		return "", err
	}
	if after.Temporal.Address != before.Temporal.Address || after.Mongo.Address != before.Mongo.Address {
		return "", errors.New("the servers have other addresses after a restart")
	}
	if !refused {
		return "", nil // it was not seen to act
	}
	return fmt.Sprintf("%s refused connections and has other process IDs; it took %.1f s to start", strings.Join(names, " and "), time.Since(began).Seconds()), nil
}

// notDurable makes PostgreSQL acknowledge writes before they are durable, or durable again. It is for a control.
func (s *servers) notDurable(ctx context.Context, on bool) error {
	record, err := s.own.Record()
	if err != nil {
		return err
	}
	port := record.Ports["postgres"]["postgres"]
	if port == 0 {
		return errors.New("this control needs PostgreSQL as the engine of the database")
	}
	c, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres", port))
	if err != nil {
		return err
	}
	statements := []string{"ALTER SYSTEM RESET synchronous_commit", "ALTER SYSTEM RESET wal_writer_delay", "SELECT pg_reload_conf()"}
	if on { // the process that makes writes durable later runs each 10 s
		statements[0], statements[1] = "ALTER SYSTEM SET synchronous_commit = off", "ALTER SYSTEM SET wal_writer_delay = '10s'"
	}
	for _, sql := range statements {
		if _, err = c.Exec(ctx, sql); err != nil {
			break
		}
	}
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}
