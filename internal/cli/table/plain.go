package table

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// Plain replaces the characters that would move a terminal's cursor, change the order of its text, break a line or begin
// a column. The names of resources and parties come from callers and may contain any.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// Count returns a number with the noun for what it counts, which is in the plural unless the number is 1.
func Count[N int | int32 | int64](n N, noun string) string {
	plural := noun + "s"
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		plural = stem + "ies"
	}
	return fmt.Sprintf("%d %s", n, Word(n, noun, plural))
}

// Word returns the first form of a word for the number 1, and the second one for all others.
func Word[N int | int32 | int64](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Fprintf formats like fmt.Fprintf. What the arguments contribute is plain and on one line, whatever their types and verbs are,
// so that no caller's text can begin a line of its own. The lines of the format stay.
func Fprintf(out io.Writer, format string, args ...any) error {
	plain := make([]any, len(args))
	for i, arg := range args {
		if _, isNumber := arg.(int); !isNumber { // a width, for the verb *, must stay an int
			arg = argument{arg}
		}
		plain[i] = arg
	}
	_, err := fmt.Fprintf(out, format, plain...)
	return err
}

// argument is an argument of Fprintf.
type argument struct{ any }

// Format writes the argument's text as one plain line.
func (a argument) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, Plain(fmt.Sprintf(fmt.FormatString(f, verb), a.any))) // Fprintf returns the error
}

// Writer writes to a terminal, or to anything that ends at one, and lets no control character through except the line
// feed, nothing that changes the order of text, and no invalid UTF-8. All output of a command goes through one, so that
// no line can forget it.
type Writer struct {
	mu sync.Mutex
	to io.Writer
	// part is the beginning of a character whose rest has not been written yet.
	part []byte
}

// NewWriter returns a Writer that writes to another.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Terminal returns a stream, or the stream to which a Writer writes, if it is a terminal; otherwise nil. What is written there
// is not made plain: it is for a command's own control sequences.
func Terminal(stream any) *os.File {
	if w, ok := stream.(*Writer); ok {
		stream = w.to
	}
	if f, ok := stream.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Write writes text.
func (w *Writer) Write(p []byte) (int, error) {
	return w.write(p, func(b *strings.Builder, _ rune) { b.WriteRune(unicode.ReplacementChar) })
}

func (w *Writer) write(p []byte, escape func(*strings.Builder, rune)) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.part, p...)
	w.part = nil
	var b strings.Builder
	b.Grow(len(text))
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			w.part = text
			break
		}
		r, size := utf8.DecodeRune(text)
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			escape(&b, r)
		}
		text = text[size:]
	}
	if _, err := io.WriteString(w.to, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// JSON returns a writer for JSON that has no whitespace other than spaces and line feeds between its values. It escapes
// what a Writer replaces, so that the values stay what they are: JSON itself allows most of it in strings.
func JSON(to io.Writer) io.Writer { return &jsonWriter{Writer{to: to}} }

type jsonWriter struct{ Writer }

// Write writes JSON.
func (w *jsonWriter) Write(p []byte) (int, error) {
	return w.write(p, func(b *strings.Builder, r rune) {
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(b, `\u%04x`, unit)
		}
	})
}
