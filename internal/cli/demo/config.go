// Package demo runs the transfer example as a load: worker processes of which one is killed, concurrent
// transfers, and auditors who must never see money missing.
package demo

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/temporal-lockstep/lockstep/internal/cli/connect"
)

// Config is what the demo is run with; package cmd/lockstep fills it from flags.
type Config struct {
	Transfers   int
	Accounts    int
	Workers     int
	Kill        bool
	Seed        int64
	Guards      bool
	Concurrency int
	Auditors    int
	// Keep leaves the database standing.
	Keep bool
	// TracesDir is the folder in which the run makes its own.
	TracesDir string

	// Temporal is where Temporal is, and how it is spoken to.
	Temporal *connect.Frontend
	MongoURI string
	// TemporalUI is the address of Temporal's web UI; empty if it is not known.
	TemporalUI string
	// JaegerUI is that of Jaeger's, for links from the report of who waited for whom; empty if there is none.
	JaegerUI string

	Out io.Writer // results
	Err io.Writer // progress
}

// ErrUsage marks errors of the demo's caller.
var ErrUsage = errors.New("wrong usage")

// Check refuses what cannot be run.
func (c *Config) Check() error {
	for _, b := range []struct {
		flag          string
		value, lo, hi int
	}{
		{"--transfers", c.Transfers, 1, 100_000},
		{"--accounts", c.Accounts, 2, 90},
		{"--workers", c.Workers, 1, 32},
		{"--concurrency", c.Concurrency, 1, 500},
		{"--auditors", c.Auditors, 1, 50},
	} {
		if b.value < b.lo || b.value > b.hi {
			return fmt.Errorf("%w: %s is %d: want %d to %d", ErrUsage, b.flag, b.value, b.lo, b.hi)
		}
	}
	if c.Kill && c.Workers < 2 {
		return fmt.Errorf("%w: --kill needs at least 2 workers, so that somebody goes on: have --workers %d", ErrUsage, c.Workers)
	}
	for _, e := range []struct{ name, value string }{
		{"TEMPORAL_ADDRESS", c.Temporal.AddressFrom}, {"LOCKSTEP_MONGODB_URI", c.MongoURI},
	} {
		if e.value == "" {
			return fmt.Errorf("%s is not set: it says where to find the servers.\n%s", e.name, remedy)
		}
	}
	return nil
}

const remedy = `Start them, and set it, with:
  make stack-up && eval "$(make -s stack-env)"
or run "make demo", which does both`

// FromEnvironment fills what the environment says, and Temporal's configuration file.
func (c *Config) FromEnvironment() (err error) {
	c.MongoURI = os.Getenv("LOCKSTEP_MONGODB_URI")
	c.TemporalUI = os.Getenv("LOCKSTEP_TEMPORAL_UI")
	c.JaegerUI = os.Getenv("LOCKSTEP_JAEGER_UI")
	c.Temporal, err = connect.FindFrontend(connect.TemporalFlags{})
	return err
}
