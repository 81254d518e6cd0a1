package testenv

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, removes their containers, and fails if goroutines have leaked. The options name goroutines that
// are not leaks.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(&patient{tests: &withoutContainers{tests: m}, options: options}, options...)
}

// withoutContainers removes the containers before the search for leaks, because each container has a goroutine.
type withoutContainers struct{ tests goleak.TestingM }

func (w *withoutContainers) Run() int {
	code := w.tests.Run()
	if err := removeContainers(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: remove containers:", err)
		code = max(code, 1)
	}
	return code
}

// patient gives goroutines time to end. goleak waits less than half a second, which is too short for closed connections on a busy
// machine.
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
