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
	out := &jsonWriter{Writer: bufio.NewWriterSize(w, 1<<16)}
	out.encoder = json.NewEncoder(&out.value)
	out.encoder.SetEscapeHTML(false)
	all := reflect.ValueOf(r).Elem()
	for i := range all.NumField() {
		name, _, _ := strings.Cut(all.Type().Field(i).Tag.Get("json"), ",")
		start := ",\n"
		if i == 0 {
			start = "{"
		}
		_, _ = out.WriteString(start + `"` + name + `":`) // the writer keeps its error until it is flushed
		if err := out.writeField(all.Field(i)); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("}\n")
	return out.Flush()
}

// jsonWriter writes one value after the other, and uses the memory for one again.
type jsonWriter struct {
	*bufio.Writer
	value   bytes.Buffer
	encoder *json.Encoder
}

func (out *jsonWriter) writeField(field reflect.Value) error {
	if field.Kind() != reflect.Slice {
		return out.writeValue(field)
	}
	_, _ = out.WriteString("[")
	for i := range field.Len() {
		if i > 0 {
			_, _ = out.WriteString(",")
		}
		_, _ = out.WriteString("\n")
		if err := out.writeValue(field.Index(i).Addr()); err != nil {
			return err
		}
	}
	_, err := out.WriteString("]")
	return err
}

func (out *jsonWriter) writeValue(v reflect.Value) error {
	out.value.Reset()
	if err := out.encoder.Encode(v.Interface()); err != nil {
		return err
	}
	_, err := out.Write(bytes.TrimRight(out.value.Bytes(), "\n"))
	return err
}
