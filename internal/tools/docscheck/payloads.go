package docscheck

import (
	"encoding/json"
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
	documented := set{}
	problems := t.pages(func(p page, report reporter) {
		examples := map[string][]block{}
		for _, b := range p.blocks {
			name, ok := strings.CutPrefix(b.comment, "json ")
			if !ok {
				continue
			}
			if types[name] == nil {
				report(b.line, "there is no payload %s", name)
				continue
			}
			d := json.NewDecoder(strings.NewReader(b.text))
			d.DisallowUnknownFields()
			if err := d.Decode(reflect.New(types[name]).Interface()); err != nil {
				report(b.line, "this is not a %s: %v", name, err)
			}
			examples[name], documented[name] = append(examples[name], b), true
		}
		for _, name := range slices.Sorted(maps.Keys(examples)) {
			for _, field := range fields(types[name]) {
				inExample := func(b block) bool { return strings.Contains(b.text, `"`+field+`"`) }
				inText := func(s span) bool { return s.text == field }
				if !slices.ContainsFunc(examples[name], inExample) && !slices.ContainsFunc(p.code, inText) {
					report(examples[name][0].line, "the field %s of %s is not mentioned", field, name)
				}
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if !documented[name] {
			problems = append(problems, Problem{"docs", 0, "no page has an example of " + name})
		}
	}
	return problems
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
