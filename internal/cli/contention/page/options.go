package page

import (
	"fmt"
	"net/url"
	"strings"
)

// DefaultMaxHolds is how many holds, and as many waits, a page has.
const DefaultMaxHolds = 20_000

// Options are those of a page. The zero value is useful.
type Options struct {
	// Title stands in the browser's tab and above the verdict, for instance the name of the file that was read. Defaults to "Lock contention".
	Title string
	// TraceURL leads to a span: {trace} and {span} stand for its IDs in hexadecimal, for instance
	// http://127.0.0.1:16686/trace/{trace}?uiFind={span}. Its scheme is http or https. Defaults to none: IDs are text.
	TraceURL string
	// MaxHolds is how many holds the page has at most, and how many waits: those of the most waited-for resources. It is
	// positive. Defaults to 20,000, with which a page has some ten megabytes.
	MaxHolds int
}

// OptionError is an option that [Write] refuses.
type OptionError struct {
	// Option is the field's name, Value what it was set to, and Want what it may be.
	Option, Value, Want string
}

// Error names the option, its value and what it may be.
func (e *OptionError) Error() string {
	return fmt.Sprintf("page: option %s is %s: want %s", e.Option, e.Value, e.Want)
}

// Check returns the *[OptionError] that [Write] would, before there is anything to write.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	if o.Title == "" {
		o.Title = "Lock contention"
	}
	if o.MaxHolds == 0 {
		o.MaxHolds = DefaultMaxHolds
	}
	if o.MaxHolds < 0 {
		return o, &OptionError{Option: "MaxHolds", Value: fmt.Sprint(o.MaxHolds), Want: "a positive number, or 0 for the default"}
	}
	return o, checkTraceURL(o.TraceURL)
}

// checkTraceURL refuses what would make a link do anything but open a page: javascript: is a scheme too.
func checkTraceURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(strings.NewReplacer("{trace}", "0", "{span}", "0").Replace(s))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return &OptionError{Option: "TraceURL", Value: fmt.Sprintf("%q", s), Want: "an http or https URL with {trace} in it"}
	}
	if !strings.Contains(s, "{trace}") {
		return &OptionError{Option: "TraceURL", Value: fmt.Sprintf("%q", s), Want: "{trace} in it, where the trace's ID goes"}
	}
	return nil
}
