package testenv

import (
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, and fails if goroutines have leaked. The options name goroutines that are not leaks.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(&patient{tests: m, options: options}, options...)
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
