// Package table prints text for people: rows in aligned columns, without characters that would disturb a terminal.
package table

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Write prints rows as columns, two spaces apart. If there is a header, it is the first row.
func Write(out io.Writer, rows ...[]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) // Flush returns the error
	}
	return w.Flush()
}

// Plain replaces the characters that would move a terminal's cursor, break a line or begin a column. The names of
// resources and parties come from callers and may contain any.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
