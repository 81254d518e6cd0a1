// Command lockstep is the command line of Lockstep.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/demo"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/cli/verify"
)

var (
	// errInterrupted is the cause with which Ctrl-C cancels a command.
	errInterrupted = errors.New("interrupted")
	// errUsage marks errors of a command's caller.
	errUsage = errors.New("wrong usage")
)

// streams are the standard streams of a command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

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

// run runs a command and returns the exit status: 0, 1 for a failure, 2 for wrong usage, 130 for Ctrl-C.
func run(ctx context.Context, args []string, s streams) int {
	s.out, s.err = table.NewWriter(s.out), table.NewWriter(s.err)
	root := rootCommand(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted) || errors.Is(context.Cause(ctx), errInterrupted):
		text := errInterrupted.Error()
		if left := new(leftError); errors.As(err, &left) {
			text += "; " + left.Error()
		}
		_ = table.Fprintf(s.err, "lockstep: %s\n", text)
		return 130
	}
	// Errors of the library have the prefix too, also inside other errors. Joined errors are on one line, because a name in an
	// error may contain a line feed.
	_ = table.Fprintf(s.err, "lockstep: %s\n", strings.NewReplacer("lockstep: ", "", "\n", "; ").Replace(err.Error()))
	if errors.Is(err, errUsage) || errors.Is(err, demo.ErrUsage) || errors.Is(err, verify.ErrUsage) {
		_ = table.Fprintf(s.err, "Try \"lockstep --help\", or \"lockstep COMMAND --help\".\n")
		return 2
	}
	return 1
}

func rootCommand(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "lockstep",
		Short:         "Isolated sagas for Temporal, with locks in MongoDB",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		Version:       version(),

		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.SetVersionTemplate("lockstep {{.Version}}\n") // as the command version prints it
	addGroup(root, "see", "See and repair:", psCommand(s), showCommand(s), whyCommand(s), uiCommand(s), deadlocksCommand(s), orphansCommand(s),
		doctorCommand(s), verifyCommand(s), contentionCommand(s), releaseCommand(s), holdCommand(s), unholdCommand(s), limitCommand(s), poolCommand(s), promoteCommand(s), policiesCommand(s),
		clearCommand(s), replacesCommand(s))
	addGroup(root, "work", "Work:", workerCommand(s), janitorCommand(s), initCommand(s), demoCommand(s))
	root.AddCommand(demoWorkerCommand(s), verifyClientCommand(s), versionCommand())
	return root
}

// addGroup adds commands with a title of their own in the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// arguments requires one argument for each name.
func arguments(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		for i, name := range names {
			if len(args) <= i || args[i] == "" {
				return fmt.Errorf("%w: %q wants %s", errUsage, c.CommandPath(), name)
			}
		}
		if len(args) > len(names) {
			return fmt.Errorf("%w: %q takes %d: have %q too", errUsage, c.CommandPath(), len(names), args[len(names)])
		}
		return nil
	}
}

// noArguments refuses arguments. At the root these are unknown commands.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasParent() {
		return fmt.Errorf("%w: %q takes no argument: have %q", errUsage, c.CommandPath(), args[0])
	}
	suggestion := ""
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		suggestion = fmt.Sprintf("; did you mean %q?", like[0])
	}
	return fmt.Errorf("%w: unknown command %q%s", errUsage, args[0], suggestion)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return table.Fprintf(c.OutOrStdout(), "lockstep %s\n", version())
		},
	}
}

// version returns the version of the module, as stamped by the go command.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
