// Command stackctl starts and ends the servers that Lockstep is developed and tested against.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/temporal-lockstep/lockstep/internal/tools/stack"
)

const usage = `usage: stackctl up|down|status|env

  up      start a Temporal server and a MongoDB, or repair the running ones
  down    end the servers that up has started; data remains
  status  show the parts, their addresses, health and logs
  env     print the addresses for: eval "$(stackctl env)"

docs/stack.md has the details.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stackctl:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	cfg, err := stack.ConfigFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return errors.New(usage)
	}
	s := stack.New(cfg, log.New(os.Stderr, "", 0))
	switch args[0] {
	case "up":
		if err := s.Up(ctx); err != nil {
			return err
		}
		return s.Status(ctx, os.Stdout)
	case "down":
		return s.Down(ctx)
	case "status":
		return s.Status(ctx, os.Stdout)
	case "env":
		env, err := s.Env(ctx)
		fmt.Print(env)
		return err
	default:
		return errors.New(usage)
	}
}
