package docscheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Payloads holds the JSON of the tree's Markdown files to the structs that are sent. A block after the comment
//
//	<!-- json AcquireParams -->
//
// is an example of the type of that name: it has no field that the type does not have. Its page names every field of the
// type, in such a block or as a piece of code; and every one of types has an example.
func Payloads(t Tree, types map[string]reflect.Type) ([]Problem, error) {
	var problems []Problem
	shown := map[string]bool{}
	err := t.each(".md", func(name, text string) error {
		page := parsePage(name, text)
		first, named := map[string]int{}, map[string]string{}
		for _, b := range page.blocks {
			of, ok := strings.CutPrefix(strings.TrimSpace(b.comment), "json ")
			if !ok {
				continue
			}
			if types[of] == nil {
				problems = append(problems, Problem{name, b.line, "there is no payload " + of})
				continue
			}
			if err := decode(b.text, types[of]); err != nil {
				problems = append(problems, Problem{name, b.line, fmt.Sprintf("this is no %s: %v", of, err)})
			}
			if first[of] == 0 {
				first[of] = b.line
			}
			shown[of], named[of] = true, named[of]+b.text
		}
		for _, of := range slices.Sorted(maps.Keys(first)) {
			for _, field := range fields(types[of]) {
				if !strings.Contains(named[of], `"`+field+`"`) && !slices.ContainsFunc(page.spans, func(s span) bool { return s.text == field }) {
					problems = append(problems, Problem{name, first[of], fmt.Sprintf("the field %s of %s is not named", field, of)})
				}
			}
		}
		return nil
	})
	for _, of := range slices.Sorted(maps.Keys(types)) {
		if !shown[of] {
			problems = append(problems, Problem{"docs", 0, "no page shows a " + of})
		}
	}
	return problems, err
}

func decode(text string, of reflect.Type) error {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	return d.Decode(reflect.New(of).Interface())
}

// fields returns the names of a struct's fields in JSON, including those of embedded structs.
func fields(of reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(of) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
