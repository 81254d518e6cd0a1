package testenv

import (
	"fmt"
	"os"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, removes the containers that they started, and fails when goroutines are left over.
// The options say which goroutines are no leak.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(&withoutContainers{tests: m}, options...)
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
