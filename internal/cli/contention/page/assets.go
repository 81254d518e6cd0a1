package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"
)

//go:embed assets/* charts/echarts.js
var files embed.FS

// scripts are joined to one, in this order.
var scripts = []string{"format.js", "data.js", "dom.js", "lanes.js", "draw.js", "ticks.js", "legend.js", "tip.js", "timeline.js", "details.js", "finder.js", "tables.js", "trees.js", "page.js"}

// assets are the page's own parts, read once: they are the same in every page.
type assets struct {
	template *template.Template
	style    string
	// charts is the library, and script what uses it.
	charts, script string
}

func load() (*assets, error) {
	text := func(name string) string {
		data, err := files.ReadFile(name)
		if err != nil {
			panic(err) // embedded by this very file
		}
		return string(data)
	}
	a := &assets{style: text("assets/page.css"), charts: text("charts/echarts.js")}
	var b strings.Builder
	b.WriteString("(() => {\n\"use strict\";\n")
	for _, name := range scripts {
		b.WriteString(text("assets/" + name))
	}
	b.WriteString("})();\n")
	a.script = b.String()
	var err error
	if a.template, err = template.New("page.html").Parse(text("assets/page.html")); err != nil {
		return nil, fmt.Errorf("page: assets/page.html: %w", err)
	}
	return a, nil
}

// policy allows the page's own script and style by their checksums, pictures that stand in the page itself, and nothing else.
func (a *assets) policy() string {
	return fmt.Sprintf("default-src 'none'; script-src %s %s; style-src %s; img-src data:; base-uri 'none'; form-action 'none'",
		checksum(a.charts), checksum(a.script), checksum(a.style))
}

func checksum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
