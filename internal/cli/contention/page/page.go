package page

import (
	"bufio"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

// DefaultMaxHolds is the default of Options.MaxHolds.
const DefaultMaxHolds = 20_000

// Options configure a page. The zero value is useful.
type Options struct {
	// Title is shown in the browser's tab and above the verdict, for instance the name of the file that was read. Defaults to "Lock contention".
	Title string
	// TraceURL is the address of a span, in which {trace} and {span} are replaced by its IDs in hexadecimal, for instance
	// http://127.0.0.1:16686/trace/{trace}?uiFind={span}. Its scheme is http or https. Defaults to none: IDs are text.
	TraceURL string
	// MaxHolds bounds the holds in the page, and the waits, to those of the most waited-for resources. It is positive. Defaults to 20,000,
	// with which a page has about ten megabytes.
	MaxHolds int
}

// OptionError reports an option that [Write] refuses.
type OptionError struct {
	// Option is the field's name, Value its value, and Want describes the values that are allowed.
	Option, Value, Want string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("page: option %s is %s: want %s", e.Option, e.Value, e.Want)
}

// Check returns the *[OptionError] that [Write] would return.
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

// checkTraceURL allows only links that open a page: javascript: is a scheme too.
func checkTraceURL(s string) error {
	if s == "" {
		return nil
	}
	refused := &OptionError{Option: "TraceURL", Value: fmt.Sprintf("%q", s), Want: "an http or https URL with {trace} in it"}
	u, err := url.Parse(strings.NewReplacer("{trace}", "0", "{span}", "0").Replace(s))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return refused
	}
	if !strings.Contains(s, "{trace}") {
		refused.Want = "{trace} in it, where the trace's ID goes"
		return refused
	}
	return nil
}

// JaegerTraces returns the TraceURL of a Jaeger whose UI has this address, "" for none.
func JaegerTraces(ui string) string {
	if ui == "" {
		return ""
	}
	return strings.TrimRight(ui, "/") + "/trace/{trace}?uiFind={span}"
}

//go:embed assets/* charts/echarts.js
var files embed.FS

// scripts are joined to one script, in this order.
var scripts = []string{"format.js", "data.js", "dom.js", "lanes.js", "draw.js", "ticks.js", "legend.js", "tip.js", "timeline.js", "details.js", "finder.js", "tables.js", "trees.js", "page.js"}

// assets are the parts that all pages have in common.
type assets struct {
	template              *template.Template
	style, charts, script string
	policy                string
}

var loadAssets = sync.OnceValue(func() *assets {
	a := &assets{style: asset("assets/page.css"), charts: asset("charts/echarts.js")}
	var b strings.Builder
	b.WriteString("(() => {\n\"use strict\";\n")
	for _, name := range scripts {
		b.WriteString(asset("assets/" + name))
	}
	b.WriteString("})();\n")
	a.script = b.String()
	a.template = template.Must(template.New("page.html").Parse(asset("assets/page.html")))
	// The page's own script and style, by their checksums, and pictures in the page itself: nothing else.
	a.policy = fmt.Sprintf("default-src 'none'; script-src %s %s; style-src %s; img-src data:; base-uri 'none'; form-action 'none'",
		checksum(a.charts), checksum(a.script), checksum(a.style))
	return a
})

func asset(name string) string {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded above
	}
	return string(data)
}

func checksum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// content fills assets/page.html. Style and scripts are the page's own, and in the data everything is escaped that could end its element;
// the template escapes the rest.
type content struct {
	Title, Policy  string
	Verdict        verdict
	Conclusion     []contention.Finding
	Style          template.CSS
	Charts, Script template.JS
	Data           template.JS
}

// Write writes the report as one HTML file. It returns an *[OptionError] before it writes anything; other errors are w's.
func Write(w io.Writer, r *contention.Report, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	data, err := json.Marshal(encode(r, o)) // escapes <, >, &, U+2028 and U+2029
	if err != nil {
		return fmt.Errorf("page: data: %w", err)
	}
	a := loadAssets()
	buffered := bufio.NewWriter(w)
	err = a.template.Execute(buffered, content{
		Title: o.Title, Policy: a.policy, Verdict: judge(r), Conclusion: r.Conclusion,
		//nolint:gosec // style and scripts are embedded, and json.Marshal has escaped the data
		Style: template.CSS(a.style), Charts: template.JS(a.charts), Script: template.JS(a.script), Data: template.JS(data),
	})
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// WriteFile writes a page to a file and replaces the file that was there. If it fails, that file is unchanged.
func WriteFile(path string, r *contention.Report, o Options) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		var of *os.PathError
		if errors.As(err, &of) {
			of.Path = path // readers of the error do not know the other name
		}
		return err
	}
	err = errors.Join(Write(f, r, o), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
