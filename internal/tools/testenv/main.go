package testenv

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, removes the containers that they started, and fails when goroutines are left over.
// The options say which goroutines are no leak.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(&patient{tests: &withoutContainers{tests: m}, options: options}, options...)
}

// withoutContainers removes the containers before leaks are looked for: each is watched by a goroutine.
type withoutContainers struct{ tests goleak.TestingM }

func (w *withoutContainers) Run() int {
	code := w.tests.Run()
	if err := removeContainers(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: remove containers:", err)
		code = max(code, 1)
	}
	return code
}

// patient gives goroutines time to end. goleak waits for less than half a second, and a connection that was closed takes
// longer than that to notice on a busy machine.
type patient struct {
	tests   goleak.TestingM
	options []goleak.Option
}

func (p *patient) Run() int {
	code := p.tests.Run()
	for began := time.Now(); goleak.Find(p.options...) != nil && time.Since(began) < answerWithin; {
	}
	return code
}
