package wire

import "unicode/utf8"

// MaxName is how many bytes lockcore accepts for a resource, lock ID, part or owner.
const MaxName = 512

// Cut returns s, or its longest beginning of at most n bytes that does not end inside a character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
