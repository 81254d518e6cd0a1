package stack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// givenKind is the choice of what the user names.
const givenKind = "given"

// choice is one way to come by a server.
type choice struct {
	kind string
	// possible says in a few words what makes this choice possible, or returns an error that says what is missing.
	possible func(ctx context.Context) (string, error)
	// start returns where the server is, once it answers.
	start func(ctx context.Context) (Endpoint, error)
	// binding choices were asked for by name: when one fails, taking another would be a surprise.
	binding bool
	// remedy is what a person can do to make this choice possible.
	remedy string
}

// choose takes the first choice that is possible and starts, and tells why it was not an earlier one.
// replace is called before another kind than the one before is started.
func choose(ctx context.Context, what string, choices []choice, say func(string, ...any), replace func(kind string) error) (Endpoint, error) {
	var ruledOut, remedies []string
	for _, c := range choices {
		if err := ctx.Err(); err != nil {
			return Endpoint{}, err
		}
		reason, err := c.possible(ctx)
		if err == nil {
			say("%s: %s (%s)", what, c.kind, reason)
			if err = replace(c.kind); err != nil {
				return Endpoint{}, err
			}
			var e Endpoint
			if e, err = c.start(ctx); err == nil {
				e.Kind, e.Why = c.kind, append(ruledOut, c.kind+": "+reason)
				return e, nil
			}
		}
		if ctx.Err() != nil {
			return Endpoint{}, context.Cause(ctx)
		}
		if reason != "" && c.binding {
			return Endpoint{}, fmt.Errorf("%s: %w", what, err)
		}
		say("%s: not %s: %s", what, c.kind, firstLine(err))
		ruledOut = append(ruledOut, fmt.Sprintf("not %s: %v", c.kind, err))
		remedies = append(remedies, c.remedy)
	}
	return Endpoint{}, errors.New("no " + what + " can be had here:\n  " + strings.Join(ruledOut, "\n  ") +
		"\nAny one of these would do:\n  - " + strings.Join(remedies, "\n  - "))
}

// firstLine leaves the logs that an error quotes to the caller that shows it.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// given is the choice of an address that the caller's environment names. isOwn tells that it names what this
// stack started itself, in a shell that was told so.
func given(variable, value string, isOwn func() bool, start func(context.Context) (Endpoint, error), remedy string) choice {
	return choice{
		kind: givenKind,
		possible: func(context.Context) (string, error) {
			if value == "" {
				return "", errors.New(variable + " is not set")
			}
			if isOwn() {
				return "", errors.New(variable + " names this very stack")
			}
			return variable + " names it", nil
		},
		start:   start,
		binding: true,
		remedy:  remedy,
	}
}

// onPath looks for a program.
func onPath(program string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		path, err := exec.LookPath(program)
		if err != nil {
			return "", fmt.Errorf("no %s on the PATH", program)
		}
		return "found " + path, nil
	}
}
