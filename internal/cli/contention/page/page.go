package page

import (
	"bufio"
	"cmp"
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

// Check returns the error that [Write] would return about the options.
func (o Options) Check() error {
	if o.MaxHolds < 0 {
		return fmt.Errorf("page: option MaxHolds is %d: want a positive number, or 0 for the default", o.MaxHolds)
	}
	if o.TraceURL == "" {
		return nil
	}
	// Only links that open a page: javascript: is a scheme too.
	u, err := url.Parse(strings.NewReplacer("{trace}", "0", "{span}", "0").Replace(o.TraceURL))
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("page: option TraceURL is %q: want an http or https URL with {trace} in it", o.TraceURL)
	case !strings.Contains(o.TraceURL, "{trace}"):
		return fmt.Errorf("page: option TraceURL is %q: want {trace} in it, where the trace's ID goes", o.TraceURL)
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

// assets are the parts that all pages have in common, and the template of the rest.
type assets struct {
	Policy         string
	Style          template.CSS
	Charts, Script template.JS
	page           *template.Template
}

var loadAssets = sync.OnceValue(func() *assets {
	style, charts := asset("assets/page.css"), asset("charts/echarts.js")
	script := "(() => {\n\"use strict\";\n"
	for _, name := range scripts {
		script += asset("assets/" + name)
	}
	script += "})();\n"
	return &assets{
		// The page's own script and style, by their checksums, and pictures in the page itself: nothing else.
		Policy: fmt.Sprintf("default-src 'none'; script-src %s %s; style-src %s; img-src data:; base-uri 'none'; form-action 'none'",
			checksum(charts), checksum(script), checksum(style)),
		Style: template.CSS(style), Charts: template.JS(charts), Script: template.JS(script), //nolint:gosec // they are embedded
		page: template.Must(template.New("page.html").Parse(asset("assets/page.html"))),
	}
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
	*assets
	Title      string
	Verdict    verdict
	Conclusion []contention.Finding
	Data       template.JS
}

// Write writes the report as one HTML file. It refuses options that [Options.Check] refuses, and writes nothing then; other errors are w's.
func Write(w io.Writer, r *contention.Report, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	o.MaxHolds = cmp.Or(o.MaxHolds, 20_000)
	data, err := json.Marshal(encode(r, o)) // escapes <, >, &, U+2028 and U+2029
	if err != nil {
		return fmt.Errorf("page: data: %w", err)
	}
	a := loadAssets()
	buffered := bufio.NewWriter(w)
	err = a.page.Execute(buffered, content{
		assets: a, Title: cmp.Or(o.Title, "Lock contention"), Verdict: judge(r), Conclusion: r.Conclusion,
		Data: template.JS(data), //nolint:gosec // json.Marshal has escaped it
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
