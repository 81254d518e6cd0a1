package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"
)

// uiConfig has the flags of ui.
type uiConfig struct {
	siteFlags
	listen, temporalUI string
	hash               bool
}

func uiCommand(s streams) *cobra.Command {
	var cfg uiConfig
	c := &cobra.Command{
		Use:   "ui",
		Short: "Serve a read-only page: who holds, who waits for whom, and how to repair it",
		Long: `Serves a page about the locks, until Ctrl-C. It changes nothing: it shows the commands that do.

It listens on the loopback, for all users of this machine, and answers under the loopback's names. At another
address it answers under any name, and requires a token: that of LOCKSTEP_UI_TOKEN, or a random one, which it
prints with the page's address. It speaks HTTP: put a proxy with TLS in front of it if others may listen.

` + connectionHelp + `

Exit status: 0 after it was stopped, 1 if it could not start, 2 for wrong usage.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return cfg.run(c.Context(), s) },
	}
	f := c.Flags()
	f.SortFlags = false
	cfg.add(c)
	f.StringVar(&cfg.listen, "listen", "127.0.0.1:8390", "where to listen; port 0 takes a free one")
	f.StringVar(&cfg.temporalUI, "temporal-ui", "", "the address of Temporal's web UI, for links (LOCKSTEP_TEMPORAL_UI)")
	f.BoolVar(&cfg.hash, "hash-names", false, "show names of resources as hashes")
	f.BoolVar(&cfg.noTemporal, "no-temporal", false, "do not ask Temporal")
	return c
}

func (cfg *uiConfig) run(ctx context.Context, s streams) error {
	host, _, err := net.SplitHostPort(cfg.listen)
	if err != nil {
		return fmt.Errorf("%w: --listen is %q: want host:port", errUsage, cfg.listen)
	}
	at, err := cfg.open(ctx, s, "lockstep ui")
	if err != nil {
		return err
	}
	defer at.close()
	if err := at.CheckCollection(ctx); err != nil { // the page must not make one
		return err
	}
	o := ui.Options{Site: at.Site, HashNames: cfg.hash, TemporalUI: cmp.Or(cfg.temporalUI, os.Getenv("LOCKSTEP_TEMPORAL_UI"))}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	address, hint := addressOf(listener.Addr().String()), ""
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		if o.Token = os.Getenv("LOCKSTEP_UI_TOKEN"); o.Token != "" { // is not printed: the output may be a log that others read
			hint = "add ?token= and the value of LOCKSTEP_UI_TOKEN\n"
		} else {
			o.Token = rand.Text()
			address += "?token=" + o.Token
		}
	}
	if err := table.Fprintf(s.out, "%s\n%sCtrl-C stops\n", address, hint); err != nil {
		return err
	}
	return serveUntil(ctx, listener, ui.Handler(o))
}

// addressOf returns the page's address for a browser. It has this machine's name if the server listens at all addresses.
func addressOf(listens string) string {
	host, port, err := net.SplitHostPort(listens)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil || name == "" {
			name = "localhost"
		}
		listens = net.JoinHostPort(name, port)
	}
	return "http://" + listens + "/"
}

func serveUntil(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() }) // browsers ask again
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
