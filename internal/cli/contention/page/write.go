package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"sync"

	"github.com/temporal-lockstep/lockstep/internal/cli/contention"
)

var loaded = sync.OnceValues(load)

// content is what assets/page.html is filled with. Style and scripts are the page's own, and data is JSON with everything escaped that could end its
// element; the rest is escaped by the template.
type content struct {
	Title, Policy  string
	Verdict        verdict
	Conclusion     []contention.Finding
	Style          template.CSS
	Charts, Script template.JS
	Data           template.JS
}

// Write writes the report as one HTML file. A *[OptionError] is returned before anything was written; other errors are w's.
func Write(w io.Writer, r *contention.Report, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	a, err := loaded()
	if err != nil {
		return err
	}
	data, err := json.Marshal(encode(r, o)) // escapes <, >, &, U+2028 and U+2029
	if err != nil {
		return fmt.Errorf("page: data: %w", err)
	}
	buffered := bufio.NewWriter(w)
	err = a.template.Execute(buffered, content{
		Title: o.Title, Policy: a.policy(), Verdict: judge(r), Conclusion: r.Conclusion,
		//nolint:gosec // style and scripts are embedded, and json.Marshal has escaped the data
		Style: template.CSS(a.style), Charts: template.JS(a.charts), Script: template.JS(a.script), Data: template.JS(data),
	})
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}
