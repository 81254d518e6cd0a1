package lockcore

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfig_Defaults_MatchTheDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/production.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` +\\| ([^|]*[^| ]) +\\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2]
	}
	defaults, err := Config{}.withDefaults()
	require.NoError(t, err)
	checked := 0
	for field, value := range reflect.ValueOf(defaults).Fields() {
		if !value.CanInt() {
			continue
		}
		checked++
		require.Equal(t, value.Int(), parseSetting(t, documented[field.Name]), "the default of %s in docs/production.md", field.Name)
	}
	require.Equal(t, 5, checked, "all times and numbers are checked")
}

// parseSetting parses a number such as "2,000" or a time such as "5 min".
func parseSetting(t *testing.T, text string) int64 {
	compact := strings.NewReplacer(",", "", " ", "", "min", "m").Replace(text)
	if d, err := time.ParseDuration(compact); err == nil {
		return int64(d)
	}
	n, err := strconv.ParseInt(compact, 10, 64)
	require.NoError(t, err, "%q is not a setting", text)
	return n
}
