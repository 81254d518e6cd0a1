package docscheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Payloads compares JSON examples with Go types. A block after the comment
//
//	<!-- json AcquireParams -->
//
// is an example of that type and must not have other fields. Its page must mention each field of the type, in such a block or as
// inline code. Each type must have an example.
func Payloads(t Tree, types map[string]reflect.Type) []Problem {
	var problems []Problem
	documented := map[string]bool{}
	for _, p := range t.pages() {
		examples := map[string][]block{}
		for _, b := range p.blocks {
			name, ok := strings.CutPrefix(b.comment, "json ")
			if !ok {
				continue
			}
			if types[name] == nil {
				problems = append(problems, Problem{p.name, b.line, "there is no payload " + name})
				continue
			}
			if err := decode(b.text, types[name]); err != nil {
				problems = append(problems, Problem{p.name, b.line, fmt.Sprintf("this is not a %s: %v", name, err)})
			}
			examples[name], documented[name] = append(examples[name], b), true
		}
		for _, name := range slices.Sorted(maps.Keys(examples)) {
			for _, field := range fields(types[name]) {
				inExample := func(b block) bool { return strings.Contains(b.text, `"`+field+`"`) }
				inText := func(s span) bool { return s.text == field }
				if !slices.ContainsFunc(examples[name], inExample) && !slices.ContainsFunc(p.code, inText) {
					problems = append(problems, Problem{p.name, examples[name][0].line, fmt.Sprintf("the field %s of %s is not mentioned", field, name)})
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if !documented[name] {
			problems = append(problems, Problem{"docs", 0, "no page has an example of " + name})
		}
	}
	return problems
}

func decode(text string, as reflect.Type) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(reflect.New(as).Interface())
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
