package contention

import (
	"errors"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds of a document. A file may come from anybody, and the parsers have no bounds of their own: a deep document exhausts
// the stack, which ends the process, and a value of two bytes becomes a span of 300.
const (
	// maxNesting bounds the nesting. Spans with a list as an attribute have 14 levels.
	maxNesting = 100
	// maxCost bounds the values, and so the memory: an object or an element of a list counts as valueCost, anything else
	// as 1. A batch of the Collector, with 8,192 spans of 20 attributes, costs about 1.5 million.
	maxCost   = 6_000_000
	valueCost = 3
	// maxText bounds an attribute of Lockstep's. Lock IDs have up to 1,500 bytes, everything else has less.
	maxText = 1500
	// maxExpansion bounds what a compressed file, or all compressed messages in a file, may become, as a multiple of its size, from freeExpansion on. Traces in
	// JSON become 10 to 50 times as large.
	maxExpansion  = 400
	freeExpansion = 64 << 20
)

var (
	errTooDeep = errors.New("it is nested more deeply than a document may be (100 levels)")
	errTooMany = errors.New("it has more values than a document may have (two million objects and elements of lists): write fewer spans into one")
	errExpands = errors.New("it expands to more than 400 times its size, as no traces do: decompress it yourself if you trust it")
)

// checkBounds refuses a document that would take too much memory to parse. It does not check that it is valid.
func checkBounds(document []byte) error {
	if len(document) > 0 && document[0] == protobufStart {
		cost := 0
		return checkMessage(document, &requestFields, 0, &cost)
	}
	return checkJSON(document)
}

func checkJSON(document []byte) error {
	lists := make([]bool, 0, maxNesting) // the open braces and brackets, true for brackets
	cost, quoted := 0, false
	for i := 0; i < len(document); i++ {
		c := document[i]
		switch {
		case quoted:
			if c == '\\' {
				i++
			}
			quoted = c != '"'
			continue
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			if len(lists) == maxNesting {
				return errTooDeep
			}
			lists, cost = append(lists, c == '['), cost+valueCost
		case (c == '}' || c == ']') && len(lists) > 0:
			lists = lists[:len(lists)-1]
		case c == ',' && len(lists) > 0 && lists[len(lists)-1]:
			cost += valueCost
		case c == ',':
			cost++
		}
		if cost > maxCost {
			return errTooMany
		}
	}
	return nil
}

// schema has the fields of a message in protobuf that are messages themselves.
type schema map[protowire.Number]*schema

// requestFields is the schema of a request, as far as it can be nested.
var (
	anyValue      = schema{}
	keyValue      = schema{2: &anyValue}
	with          = func(attributes protowire.Number) *schema { return &schema{attributes: &keyValue} }
	spanFields    = schema{9: &keyValue, 11: with(3), 13: with(4)}
	requestFields = schema{1: {1: with(1), 2: {1: with(3), 2: &spanFields}}}
)

func init() {
	anyValue[5] = &schema{1: &anyValue} // a list
	anyValue[6] = &schema{1: &keyValue} // an object
}

// checkMessage stops at a field that is not valid: the parser reports it.
func checkMessage(data []byte, of *schema, depth int, cost *int) error {
	if depth > maxNesting {
		return errTooDeep
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return nil
		}
		value := data[:n]
		data = data[n:]
		inner := (*of)[number]
		if *cost++; inner != nil {
			*cost += valueCost - 1
		}
		if *cost > maxCost {
			return errTooMany
		}
		if inner == nil || kind != protowire.BytesType {
			continue
		}
		content, _ := protowire.ConsumeBytes(value)
		if err := checkMessage(content, inner, depth+1, cost); err != nil {
			return err
		}
	}
	return nil
}

// counter counts what is read.
type counter struct {
	from io.Reader
	n    int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

// mayBecome reports whether what was read may have become so many bytes of content.
func (c *counter) mayBecome(content int64) bool {
	return content <= freeExpansion || content/maxExpansion <= c.n
}

// expanding is the content of a compressed file.
type expanding struct {
	content counter
	file    *counter
}

func (e *expanding) Read(p []byte) (int, error) {
	if !e.file.mayBecome(e.content.n) {
		return 0, errExpands
	}
	return e.content.Read(p)
}
