package telemetry_test

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

var update = flag.Bool("update", false, "write docs/telemetry.md anew")

// head is the text of the page before its tables.
//
//go:embed testdata/head.txt
var head string

const page = "../../docs/telemetry.md"

// TestThePageIsTheCatalogue holds docs/telemetry.md to the catalogue, which a test of lockcore holds to what is recorded:
//
//	go test ./internal/telemetry -update
func TestThePageIsTheCatalogue(t *testing.T) {
	t.Parallel()
	want := head + spans() + metrics()
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o600))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "go test ./internal/telemetry -update writes the page anew")
}

func spans() string {
	var b strings.Builder
	b.WriteString("\n## Spans\n\nInstrumentation scope: `" + telemetry.Scope + "`. A `?` marks optional attributes. Attributes and outcomes are explained below.\n")
	for _, s := range telemetry.Spans {
		fmt.Fprintf(&b, "\n### `%s`\n\n", s.Name)
		fmt.Fprintf(&b, "%s. Times: the %s's. Parent: %s.", sentence(s.When), s.Clock, s.Parent)
		if s.Links != "" {
			fmt.Fprintf(&b, " Links: %s.", s.Links)
		}
		fmt.Fprintf(&b, "\n\n- Attributes: %s.\n", list(s.Attributes))
		for _, e := range s.Events {
			if before := event(e); strings.Contains(b.String(), before) {
				fmt.Fprintf(&b, "- Event `%s`, as above.\n", e.Name)
			} else {
				b.WriteString(before)
			}
		}
	}
	b.WriteString("\n### On the holder's own span\n\n" + event(telemetry.LostEvent))
	return b.String() + attributes() + outcomes()
}

// attributes is a list of all, each once; helped otherwise by another span, with that too.
func attributes() string {
	var b strings.Builder
	b.WriteString("\n## Attributes\n\nStrings, except where a type is given.\n\n")
	help, types, order := map[string][]string{}, map[string]string{}, []string(nil)
	take := func(all []telemetry.Attribute) {
		for _, a := range all {
			if types[a.Key] == "" {
				types[a.Key], order = a.Type, append(order, a.Key)
			}
			if !slices.Contains(help[a.Key], a.Help) {
				help[a.Key] = append(help[a.Key], a.Help)
			}
		}
	}
	for _, s := range telemetry.Spans {
		take(s.Attributes)
		for _, e := range s.Events {
			take(e.Attributes)
		}
	}
	take(telemetry.LostEvent.Attributes)
	for _, key := range order {
		fmt.Fprintf(&b, "- `%s`%s: %s\n", key, map[string]string{"int": " (int)"}[types[key]], strings.Join(help[key], "; or "))
	}
	return b.String()
}

func outcomes() string {
	var b strings.Builder
	b.WriteString("\n## Outcomes\n\n")
	type outcome struct{ name, help string }
	of, order := map[outcome][]string{}, []outcome(nil)
	for _, s := range telemetry.Spans {
		for _, v := range s.Outcomes {
			o := outcome{v.Name, v.Help}
			if of[o] == nil {
				order = append(order, o)
			}
			of[o] = append(of[o], strings.TrimPrefix(s.Name, "lock."))
		}
	}
	slices.SortStableFunc(order, func(a, b outcome) int { return strings.Compare(a.name, b.name) })
	for _, o := range order {
		fmt.Fprintf(&b, "- `%s` (%s): %s\n", o.name, strings.Join(of[o], ", "), o.help)
	}
	return b.String()
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func list(all []telemetry.Attribute) string {
	var names []string
	for _, a := range all {
		name := "`" + a.Key + "`"
		if strings.HasPrefix(a.Key, "lock.blocked_by.") {
			name = "`lock.blocked_by.*`"
		}
		if a.Optional {
			name += "?"
		}
		names = append(names, name)
	}
	return strings.Join(slices.Compact(names), ", ")
}

func event(e telemetry.Event) string {
	text := fmt.Sprintf("- Event `%s`, %s.", e.Name, e.When)
	if len(e.Attributes) > 0 {
		text += " It has " + list(e.Attributes) + "."
	}
	return text + "\n"
}

func metrics() string {
	var b strings.Builder
	b.WriteString("\n## Metrics\n\n")
	for _, m := range telemetry.Metrics {
		fmt.Fprintf(&b, "- `%s` (%s, %s): %s; recorded %s. Attributes: `%s`\n", m.Name, m.Kind, m.Unit, m.Help, m.When, strings.Join(m.Attributes, "`, `"))
	}
	b.WriteString("\nUpper bounds of the histograms' buckets, unless a view of yours sets others:\n\n")
	of, order := map[string][]string{}, []string(nil)
	for _, m := range telemetry.Metrics {
		if len(m.Buckets) == 0 {
			continue
		}
		bounds := strings.Trim(strings.ReplaceAll(fmt.Sprint(m.Buckets), " ", ", "), "[]")
		if of[bounds] == nil {
			order = append(order, bounds)
		}
		of[bounds] = append(of[bounds], "`"+m.Name+"`")
	}
	for _, bounds := range order {
		fmt.Fprintf(&b, "- %s: %s\n", strings.Join(of[bounds], ", "), bounds)
	}
	return b.String()
}
