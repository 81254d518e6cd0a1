package telemetry_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/internal/telemetry"
)

// Names as Prometheus has them: of metrics and labels, of which ours begin with "lock_", and the rest of a selector.
var (
	metricName = regexp.MustCompile(`\block_[a-z_]+`)
	labelsOf   = regexp.MustCompile(`(lock_[a-z_]+)\{([^}]*)\}`)
	label      = regexp.MustCompile(`([a-z_]+)=`)
)

// prometheus are the series of the metrics, with their labels.
func prometheus() map[string][]string {
	dots := func(s string) string { return strings.ReplaceAll(s, ".", "_") }
	series := map[string][]string{}
	for _, m := range telemetry.Metrics {
		var labels []string
		for _, a := range m.Attributes {
			labels = append(labels, dots(a))
		}
		name := dots(m.Name)
		if m.Unit == "s" {
			name += "_seconds"
		}
		if m.Kind == "counter" {
			series[name+"_total"] = labels
			continue
		}
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			series[name+part] = labels
		}
	}
	return series
}

// TestDashboardAndAlertsUseWhatIsRecorded: a panel of a metric that was renamed would just stay empty.
func TestDashboardAndAlertsUseWhatIsRecorded(t *testing.T) {
	t.Parallel()
	series := prometheus()
	var all []string
	for _, labels := range series {
		all = append(all, labels...)
	}
	for _, file := range []string{"dashboard.json", "alerts.yaml"} {
		text, err := os.ReadFile("../../docs/monitoring/" + file)
		require.NoError(t, err)
		found := 0
		for _, name := range metricName.FindAllString(string(text), -1) {
			_, known := series[name]
			require.True(t, known || slices.Contains(all, name), "%s: there is no %s", file, name)
			found++
		}
		require.Greater(t, found, 10, file)
		for _, selector := range labelsOf.FindAllStringSubmatch(string(text), -1) {
			for _, l := range label.FindAllStringSubmatch(selector[2], -1) {
				if l[1] != "job" {
					require.Contains(t, series[selector[1]], l[1], "%s: %s has no such label", file, selector[1])
				}
			}
		}
	}
	var dashboard struct{ Panels []any }
	text, err := os.ReadFile("../../docs/monitoring/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
}

// TestEveryAlertHasItsRunbook: each alert names its section of docs/production.md, and there is one.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("../../docs/monitoring/alerts.yaml")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/production.md")
	require.NoError(t, err)
	all := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1)
	require.NotEmpty(t, all)
	for _, alert := range all {
		require.Contains(t, string(alerts), "runbook: docs/production.md#"+strings.ToLower(alert[1])+"\n")
		require.Contains(t, string(page), "\n### "+alert[1]+"\n")
	}
}
