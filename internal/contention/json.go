package contention

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
)

// WriteJSON writes a report as one JSON object, an element of its lists a line: it may be larger than what memory should hold of it
// twice. The error is that of w.
func WriteJSON(w io.Writer, r *Report) error {
	out := bufio.NewWriterSize(w, 1<<16)
	all := reflect.ValueOf(r).Elem()
	for i := range all.NumField() {
		name, _, _ := strings.Cut(all.Type().Field(i).Tag.Get("json"), ",")
		start := ",\n"
		if i == 0 {
			start = "{"
		}
		_, _ = out.WriteString(start + `"` + name + `":`) // the writer keeps its error until it is flushed
		if err := writeField(out, all.Field(i)); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("}\n")
	return out.Flush()
}

func writeField(out *bufio.Writer, field reflect.Value) error {
	if field.Kind() != reflect.Slice {
		return writeValue(out, field)
	}
	_, _ = out.WriteString("[")
	for i := range field.Len() {
		if i > 0 {
			_, _ = out.WriteString(",")
		}
		_, _ = out.WriteString("\n")
		if err := writeValue(out, field.Index(i).Addr()); err != nil {
			return err
		}
	}
	_, err := out.WriteString("]")
	return err
}

func writeValue(out *bufio.Writer, v reflect.Value) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Interface()); err != nil {
		return err
	}
	_, err := out.Write(bytes.TrimRight(b.Bytes(), "\n"))
	return err
}
