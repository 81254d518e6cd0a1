// Command lockstep is the command line of Lockstep.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/temporal-lockstep/lockstep/internal/cli/demo"
)

// errInterrupted is the cause with which Ctrl-C cancels a command.
var errInterrupted = errors.New("interrupted")

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // a second one ends the process at once
		cancel(errInterrupted)
	}()
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	cancel(nil)
	os.Exit(code)
}

// run maps what a command returns to an exit status: 0, 1 for a failure, 2 for wrong usage, 130 for Ctrl-C.
func run(ctx context.Context, args []string, s streams) int {
	root := rootCommand(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted) || errors.Is(context.Cause(ctx), errInterrupted):
		said := errInterrupted.Error()
		if left := new(leftError); errors.As(err, &left) {
			said += "; " + left.Error()
		}
		_, _ = fmt.Fprintln(s.err, "lockstep:", said)
		return 130
	}
	_, _ = fmt.Fprintln(s.err, "lockstep:", err)
	if errors.Is(err, errUsage) || errors.Is(err, demo.ErrUsage) {
		_, _ = fmt.Fprintln(s.err, `Try "lockstep --help", or "lockstep COMMAND --help".`)
		return 2
	}
	return 1
}
