package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func initCommand(s streams) *cobra.Command {
	var db databaseFlags
	c := &cobra.Command{
		Use:   "init",
		Short: "Make the indexes of a collection of locks, and print its ID",
		Long: `Makes the indexes that a collection of locks needs, if they are not there, and prints the collection's ID, by
which workers tell it from others of the same name. It may be called again. Workers whose database role may
make no indexes need it once, by somebody who may.

Exit status: 0, 1 if the database could not be reached or refused, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			site, end, err := db.open(c.Context(), "lockstep init")
			if err != nil {
				return err
			}
			defer end()
			if err := site.Locker.CreateIndexes(c.Context()); err != nil {
				return err
			}
			id, err := site.Locker.CollectionID(c.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.out, "the indexes are there; the collection's ID is %s\n", id)
			return err
		},
	}
	db.add(c.Flags())
	return c
}
