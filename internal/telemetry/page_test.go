package telemetry_test

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

var update = flag.Bool("update", false, "write docs/telemetry.md anew")

// head is what the page says before its tables.
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
	b.WriteString("\n## Spans\n\nInstrumentation scope: `" + telemetry.Scope + "`.\n")
	for _, s := range telemetry.Spans {
		fmt.Fprintf(&b, "\n### `%s`\n\n", s.Name)
		fmt.Fprintf(&b, "%s. Start and end are the %s's times. Parent: %s.", sentence(s.When), s.Clock, s.Parent)
		if s.Links != "" {
			fmt.Fprintf(&b, " Links: %s.", s.Links)
		}
		b.WriteString("\n\n| attribute | type | |\n| --- | --- | --- |\n")
		for _, a := range s.Attributes {
			b.WriteString(attribute(a))
		}
		b.WriteString("\n| `" + telemetry.Outcome + "` | |\n| --- | --- |\n")
		for _, v := range s.Outcomes {
			fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, v.Help)
		}
		for _, e := range s.Events {
			b.WriteString(event(e))
		}
	}
	b.WriteString("\n### On the holder's own span\n" + event(telemetry.LostEvent))
	return b.String()
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func attribute(a telemetry.Attribute) string {
	key := "`" + a.Key + "`"
	if a.Optional {
		key += ", optional"
	}
	return fmt.Sprintf("| %s | %s | %s |\n", key, a.Type, a.Help)
}

func event(e telemetry.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nEvent `%s`: %s.\n", e.Name, e.When)
	if len(e.Attributes) > 0 {
		b.WriteString("\n| attribute of the event | type | |\n| --- | --- | --- |\n")
	}
	for _, a := range e.Attributes {
		b.WriteString(attribute(a))
	}
	return b.String()
}

func metrics() string {
	var b strings.Builder
	b.WriteString("\n## Metrics\n\n| name | kind | unit | what | recorded | attributes |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, m := range telemetry.Metrics {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | `%s` |\n", m.Name, m.Kind, m.Unit, m.Help, m.When, strings.Join(m.Attributes, "`, `"))
	}
	b.WriteString("\nUpper bounds of the histograms' buckets, unless a view of yours sets others:\n\n| histogram | bounds |\n| --- | --- |\n")
	for _, m := range telemetry.Metrics {
		if len(m.Buckets) > 0 {
			fmt.Fprintf(&b, "| `%s` | %s |\n", m.Name, strings.Trim(strings.ReplaceAll(fmt.Sprint(m.Buckets), " ", ", "), "[]"))
		}
	}
	return b.String()
}
