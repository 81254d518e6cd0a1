// Package table prints text for people: rows in aligned columns, without characters that would disturb a terminal.
package table

import (
	"cmp"
	"io"
	"slices"
	"text/tabwriter"
	"unicode/utf8"
)

// separation is the number of spaces between two columns.
const separation = 2

// Narrow removes columns, the first of those listed in optional first, until the rows are at most width characters wide if the columns in flexible are
// shortened to least characters. The flexible columns come before the optional ones. All rows have the same number of cells.
func Narrow(width, least int, rows [][]string, optional []int, flexible ...int) [][]string {
	removed := map[int]bool{}
	for _, column := range optional {
		if narrowest(rows, removed, least, flexible) <= width {
			break
		}
		removed[column] = true
	}
	out := make([][]string, len(rows))
	for i, row := range rows {
		for j, cell := range row {
			if !removed[j] {
				out[i] = append(out[i], cell)
			}
		}
	}
	return out
}

// narrowest returns the width of rows without the removed columns, and with flexible columns shortened to least characters.
func narrowest(rows [][]string, removed map[int]bool, least int, flexible []int) int {
	total := -separation
	for j := range rows[0] {
		if removed[j] {
			continue
		}
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[j]))
		}
		if slices.Contains(flexible, j) {
			widest = min(widest, least)
		}
		total += widest + separation
	}
	return total
}

// Fit shortens cells of some columns in the middle, so that the rows are at most width characters wide. It leaves columns
// of eight characters as they are.
func Fit(width int, rows [][]string, columns ...int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := separation * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > width; total-- {
		widest := slices.MaxFunc(columns, func(a, b int) int { return cmp.Compare(widths[a], widths[b]) })
		if widths[widest] <= 8 {
			break
		}
		widths[widest]--
	}
	for _, row := range rows {
		for _, i := range columns {
			row[i] = Shorten(row[i], widths[i])
		}
	}
}

// Shorten returns a text of at most width characters. It leaves out the middle, and more of the beginning than of the end,
// because names differ more at their ends.
func Shorten(text string, width int) string {
	letters, tail := []rune(text), width*3/5
	if len(letters) <= width {
		return text
	}
	return string(letters[:width-tail-1]) + "…" + string(letters[len(letters)-tail:])
}

// Write prints rows as columns, two spaces apart. If there is a header, it is the first row. Cells are made plain: otherwise
// a tab or a line feed would begin a cell or a row.
func Write(out io.Writer, rows ...[]string) error {
	w := tabwriter.NewWriter(out, 0, 0, separation, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				_, _ = io.WriteString(w, "\t") // Flush returns the error, here and below
			}
			_, _ = io.WriteString(w, Plain(cell))
		}
		_, _ = io.WriteString(w, "\n")
	}
	return w.Flush()
}
