package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/temporal-lockstep/lockstep/internal/proof/harness"
)

// pool has the worker processes of a run, one in each slot.
type pool struct {
	*harness.Pool
	died chan *harness.Process // processes that ended by themselves
}

func newPool(r *run) *pool {
	p := &pool{died: make(chan *harness.Process, workers+1)}
	p.Pool = harness.NewPool(workers, func(_, number int) harness.Command {
		name := fmt.Sprintf("worker-%d", number)
		return harness.Command{
			Name: name, Output: filepath.Join(r.dir, name+".log"), Within: 30 * time.Second,
			Args: []string{
				"demo-worker", "--database", r.db.Name(), "--task-queue", r.id,
				"--traces", r.dir, "--name", name,
			},
			Ended: func(proc *harness.Process) {
				if proc.Crashed() {
					p.died <- proc
				}
			},
		}
	})
	return p
}

// watch fails the run when a worker ends by itself, which would not be noticed if the others continue.
func (p *pool) watch(ctx context.Context, fail context.CancelCauseFunc) {
	select {
	case proc := <-p.died:
		fail(fmt.Errorf("%s ended by itself: see %s", proc.Name, proc.Output))
	case <-ctx.Done():
	}
}

// kill ends the first worker as a crash would, and starts another one.
func (p *pool) kill(ctx context.Context) (name string, err error) {
	victim := p.At(0)
	victim.Kill()
	return victim.Name, p.Start(ctx, 0)
}

// stop asks all workers to stop, and kills each worker that does not.
func (p *pool) stop() {
	p.Stop(0, workers, func(_ int, proc *harness.Process) { _ = proc.Quit(8 * time.Second) }) // its output has the reason
}
