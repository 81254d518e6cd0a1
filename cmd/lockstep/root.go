package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// errUsage marks errors of whoever called a command.
var errUsage = errors.New("wrong usage")

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func rootCommand(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "lockstep",
		Short:         "Isolated sagas for Temporal, with locks in MongoDB",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(workerCommand(s), janitorCommand(s), demoCommand(s), demoWorkerCommand(s), contentionCommand(s), versionCommand())
	return root
}

// noArguments refuses words that no command takes.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasParent() {
		return fmt.Errorf("%w: %q takes no argument: have %q", errUsage, c.CommandPath(), args[0])
	}
	return fmt.Errorf("%w: unknown command %q", errUsage, args[0])
}
