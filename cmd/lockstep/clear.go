package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/repair"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/wire"
)

// collectionConfig has the flags of clear and replaces.
type collectionConfig struct {
	databaseFlags
	reason string
}

func (cfg *collectionConfig) add(c *cobra.Command, why string) {
	f := c.Flags()
	f.SortFlags = false
	cfg.databaseFlags.add(c)
	f.StringVar(&cfg.reason, "reason", "", why+"; required. Your name and host are added")
}

// open checks the reason, and opens a collection that exists.
func (cfg *collectionConfig) open(ctx context.Context, command string) (*site, error) {
	if strings.TrimSpace(cfg.reason) == "" {
		return nil, fmt.Errorf("%w: --reason is required", errUsage)
	}
	if n := len(signed(cfg.reason)); n > wire.MaxName {
		return nil, fmt.Errorf("%w: --reason has %d bytes with your name and host: want at most %d", errUsage, n, wire.MaxName)
	}
	at, err := cfg.databaseFlags.open(ctx, command)
	if err != nil {
		return nil, err
	}
	if err := at.CheckCollection(ctx); err != nil {
		at.close()
		return nil, err
	}
	return at, nil
}

func clearCommand(s streams) *cobra.Command {
	var cfg collectionConfig
	c := &cobra.Command{
		Use:   "clear",
		Short: "Release everything by force, after the collection was restored from a backup",
		Long: `Ends all holds and claims in the collection, as release does one by one: their owners get the reason when they next
renew or ask, sagas are undone, and parts that may still be at work keep others out until they leave or their leases
end. Queues and fences stay. Documents that cannot be decoded are deleted; that needs the right to remove documents.
Within ten seconds all workers drop what they know of the collection. They need no restart.

It may be repeated, and must be if it fails.

Exit status: 0, 1 if it is not complete, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return cfg.clear(c.Context(), s) },
	}
	cfg.add(c, "why, for the owners, lockstep show and traces")
	return c
}

func (cfg *collectionConfig) clear(ctx context.Context, s streams) error {
	at, err := cfg.open(ctx, "lockstep clear")
	if err != nil {
		return err
	}
	defer at.close()
	done, err := repair.Clear(ctx, at.Locker, at.Collection, signed(cfg.reason))
	printed := []error{table.Fprintf(s.out, "ended by force: %s and %s on %s\n", table.Count(done.Holds, "hold"), table.Count(done.Claims, "claim"), table.Count(done.Resources, "resource"))}
	if done.Holds > 0 {
		printed = append(printed, table.Fprintf(s.out, "a holder that still works learns of it at its next renewal, after a third of its TTL at most; %s\n", inspect.LateWrites))
	}
	for _, name := range done.Deleted {
		printed = append(printed, table.Fprintf(s.out, "deleted, since it could not be decoded: %s\n", name))
	}
	if err == nil {
		printed = append(printed, table.Fprintf(s.out, "the collection has the ID %s\n", done.ID))
		logger(s).Info("lockstep: the collection was cleared", "id", done.ID, "holds", done.Holds, "claims", done.Claims, "reason", signed(cfg.reason))
	}
	if failed := errors.Join(printed...); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("it is not complete: repeat it: %w", err)
	}
	return nil
}

func replacesCommand(s streams) *cobra.Command {
	var cfg collectionConfig
	c := &cobra.Command{
		Use:   "replaces OLD-ID",
		Short: "Record that the collection replaces one that was dropped or left behind",
		Long: `Steps whose workflows took their locks in another collection are refused, for as long as it takes: their worker may
have a wrong configuration. The refusal names the ID of that collection. If it was dropped, restored under another ID,
or left behind on another cluster, this command records that its locks are lost. Then the steps fail with
lockstep.Lost and their sagas are undone; compensations take their locks again, in this collection.

Be sure that no worker uses the old collection any longer: its locks would not exclude those of this one.

Exit status: 0, 1 if it was not recorded, 2 for wrong usage.`,
		Args: arguments("the ID of the old collection, as the refusal of a step and lockstep doctor print it"),
		RunE: func(c *cobra.Command, args []string) error { return cfg.replaces(c.Context(), s, args[0]) },
	}
	cfg.add(c, "why, for people")
	return c
}

func (cfg *collectionConfig) replaces(ctx context.Context, s streams, old string) error {
	if len(old) > wire.MaxName {
		return fmt.Errorf("%w: the ID has %d bytes: want at most %d", errUsage, len(old), wire.MaxName)
	}
	at, err := cfg.open(ctx, "lockstep replaces")
	if err != nil {
		return err
	}
	defer at.close()
	if err := repair.Replace(ctx, at.Collection, old, signed(cfg.reason)); err != nil {
		return err
	}
	id, err := at.Locker.CollectionID(ctx)
	if err != nil {
		return err
	}
	logger(s).Info("lockstep: the collection replaces another", "id", id, "replaces", old, "reason", signed(cfg.reason))
	return table.Fprintf(s.out, "the collection with the ID %s replaces that with the ID %s, whose locks are lost\n", id, old)
}
