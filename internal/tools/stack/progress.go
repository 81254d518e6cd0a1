package stack

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Minutes without a sign of life look like a hang. A terminal gets a line that is redrawn; a log gets new lines, fewer.
const (
	redrawEvery = time.Second
	repeatEvery = 15 * time.Second
)

// Progress tells a person what is being done, and for how long already.
type Progress struct {
	out   io.Writer
	width int // of the terminal; 0 if the output is none

	mu    sync.Mutex
	tasks []*task
	drawn bool
	stop  chan struct{}
	done  chan struct{}
}

// task is one thing that takes a while.
type task struct {
	progress *Progress
	name     string
	began    time.Time
	detail   string // guarded by progress.mu
}

// NewProgress writes to out until Close.
func NewProgress(out io.Writer) *Progress {
	p := &Progress{out: out, stop: make(chan struct{}), done: make(chan struct{})}
	every := repeatEvery
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		every, p.width = redrawEvery, 80
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			p.width = w
		}
	}
	go p.loop(every)
	return p
}

// Close ends the redrawing.
func (p *Progress) Close() {
	close(p.stop)
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// Say writes one line.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
	p.redraw()
}

func (p *Progress) start(name string) *task {
	p.Say("%s ...", name)
	t := &task{progress: p, name: name, began: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tasks = append(p.tasks, t)
	return t
}

// end takes the task from the list and says how it went.
func (t *task) end(err error) {
	p := t.progress
	p.mu.Lock()
	p.tasks = slices.DeleteFunc(p.tasks, func(other *task) bool { return other == t })
	p.mu.Unlock()
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	p.Say("%s: %s after %s", t.name, outcome, t.elapsed())
}

func (t *task) elapsed() string {
	d := time.Since(t.began)
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// note keeps the last line that the work has printed, to be shown with the elapsed time.
func (t *task) note(line string) {
	t.progress.mu.Lock()
	defer t.progress.mu.Unlock()
	t.detail = line
}

func (p *Progress) loop(every time.Duration) {
	defer close(p.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		if p.width > 0 {
			p.redraw()
		} else {
			for _, t := range p.tasks {
				fmt.Fprintf(p.out, "  %s\n", t.line())
			}
		}
		p.mu.Unlock()
	}
}

func (t *task) line() string {
	line := t.name + ": " + time.Since(t.began).Round(time.Second).String()
	if t.detail != "" {
		line += ", " + t.detail
	}
	return line
}

func (p *Progress) redraw() {
	if p.width == 0 || len(p.tasks) == 0 {
		return
	}
	parts := make([]string, len(p.tasks))
	room := (p.width-1)/len(p.tasks) - 3
	for i, t := range p.tasks {
		parts[i] = clip(t.line(), room)
	}
	p.clear()
	fmt.Fprint(p.out, strings.Join(parts, " | "))
	p.drawn = true
}

func (p *Progress) clear() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

func clip(s string, room int) string {
	r := []rune(s)
	if len(r) <= room {
		return s
	}
	return string(r[:max(room, 0)])
}
