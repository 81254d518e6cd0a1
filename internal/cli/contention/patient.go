package contention

import (
	"context"
	"io"
	"os"
)

// open opens a file to read it, and gives up with the cause when ctx ends: a named pipe opens when another process opens its other end, and not before.
func open(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened)
	go func() {
		f, err := os.Open(path) //nolint:gosec // the caller names the file
		select {
		case done <- opened{f, err}:
		case <-ctx.Done():
			if f != nil {
				_ = f.Close() // it is not read
			}
		}
	}()
	select {
	case o := <-done:
		return o.file, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// patient reads from what may never answer, such as a pipe whose other end hangs, and gives up when its context ends.
type patient struct {
	ctx     context.Context
	from    io.Reader
	asked   chan []byte
	answers chan answer
	rest    []byte
	err     error
}

type answer struct {
	data []byte
	err  error
}

func (p *patient) Read(to []byte) (int, error) {
	if p.asked == nil {
		p.asked, p.answers = make(chan []byte, 1), make(chan answer, 1)
		go p.serve()
	}
	if len(p.rest) == 0 && p.err == nil {
		p.asked <- make([]byte, len(to))
		select {
		case <-p.ctx.Done():
			p.err = context.Cause(p.ctx)
		case a := <-p.answers:
			p.rest, p.err = a.data, a.err
		}
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	if len(p.rest) > 0 {
		return n, nil
	}
	return n, p.err
}

// stop is called when the reader has stopped.
func (p *patient) stop() {
	if p.asked != nil {
		close(p.asked)
	}
}

// serve ends when the reader has stopped, or when there is no more to read. A buffer is its own until it has answered, so that a reader that gave up does not look at it.
func (p *patient) serve() {
	for to := range p.asked {
		n, err := p.from.Read(to)
		p.answers <- answer{to[:n], err}
		if err != nil {
			return
		}
	}
}
