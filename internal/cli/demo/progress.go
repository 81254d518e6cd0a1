package demo

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far the transfers are: a bar on a terminal, a line for each tenth elsewhere.
type progress struct {
	bar   *progressbar.ProgressBar
	out   io.Writer
	mu    sync.Mutex
	total int
	done  int
}

func newProgress(cfg Config) *progress {
	p := &progress{out: cfg.Err, total: cfg.Transfers}
	if f, ok := cfg.Err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(cfg.Transfers, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription("transfers"),
			progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	}
	return p
}

func (p *progress) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.bar != nil {
		_ = p.bar.Add(1) // a bar that cannot be drawn is no reason to stop
		return
	}
	if tenth := max(1, p.total/10); p.done%tenth == 0 || p.done == p.total {
		_, _ = fmt.Fprintf(p.out, "transfers: %d of %d\n", p.done, p.total)
	}
}

func (p *progress) close() {
	if p.bar != nil {
		_ = p.bar.Exit() // likewise
		_, _ = fmt.Fprintln(p.out)
	}
}
