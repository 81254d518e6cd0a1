package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// errUsage marks errors of a command's caller.
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
		Version:       version(),

		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.AddGroup(&cobra.Group{ID: look, Title: "See and repair:"}, &cobra.Group{ID: work, Title: "Work:"})
	grouped(root, look, psCommand(s), showCommand(s), whyCommand(s), uiCommand(s), deadlocksCommand(s), orphansCommand(s), doctorCommand(s), contentionCommand(s), releaseCommand(s), holdCommand(s), unholdCommand(s))
	grouped(root, work, workerCommand(s), janitorCommand(s), initCommand(s), demoCommand(s))
	root.SetVersionTemplate("lockstep {{.Version}}\n") // as the command version prints it
	root.AddCommand(demoWorkerCommand(s), versionCommand())
	return root
}

// The groups of commands in the help.
const (
	look = "look"
	work = "work"
)

func grouped(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// arguments wants as many words as it names.
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

// noArguments refuses words that no command takes.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasParent() {
		return fmt.Errorf("%w: %q takes no argument: have %q", errUsage, c.CommandPath(), args[0])
	}
	meant := ""
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		meant = fmt.Sprintf("; did you mean %q?", like[0])
	}
	return fmt.Errorf("%w: unknown command %q%s", errUsage, args[0], meant)
}
