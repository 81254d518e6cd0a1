package mongoengine

import "go.mongodb.org/mongo-driver/v2/bson"

// The words of the aggregation language that the pipelines use. Each returns an expression; strings
// that start with "$" are field paths or variables. Nothing that a caller passed stands in an
// expression: it is in the literal that the first stage sets.

type expr = any

func op(name string, args ...expr) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }

func on(name string, arg expr) bson.D { return bson.D{{Key: name, Value: arg}} }

func lit(v any) bson.D { return on("$literal", v) }

func v(name string, value expr) bson.E { return bson.E{Key: name, Value: value} }

func doc(fields ...bson.E) bson.D { return fields }

// list is an array; never nil, which would be sent as null.
func list(items ...expr) bson.A { return append(bson.A{}, items...) }

// stages is a pipeline that grows. Each stage sees what the ones before it left.
type stages []bson.D

// put sets fields of the document, and set those of t.
func (s *stages) put(fields ...bson.E) { *s = append(*s, on("$set", doc(fields...))) }

func (s *stages) set(vars ...bson.E) {
	fields := make(bson.D, len(vars))
	for i, e := range vars {
		fields[i] = bson.E{Key: "t." + e.Key, Value: e.Value}
	}
	s.put(fields...)
}

func cond(when, then, otherwise expr) bson.D { return op("$cond", when, then, otherwise) }

func and(a ...expr) bson.D     { return op("$and", a...) }
func or(a ...expr) bson.D      { return op("$or", a...) }
func not(a expr) bson.D        { return op("$not", a) }
func eq(a, b expr) bson.D      { return op("$eq", a, b) }
func ne(a, b expr) bson.D      { return op("$ne", a, b) }
func gt(a, b expr) bson.D      { return op("$gt", a, b) }
func gte(a, b expr) bson.D     { return op("$gte", a, b) }
func lt(a, b expr) bson.D      { return op("$lt", a, b) }
func lte(a, b expr) bson.D     { return op("$lte", a, b) }
func in(a, b expr) bson.D      { return op("$in", a, b) }
func add(a, b expr) bson.D     { return op("$add", a, b) }
func ifNull(a, b expr) bson.D  { return op("$ifNull", a, b) }
func concat(a ...expr) bson.D  { return op("$concatArrays", a...) }
func merge(a ...expr) bson.D   { return op("$mergeObjects", a...) }
func largest(a ...expr) bson.D { return op("$max", a...) }

func size(a expr) bson.D  { return on("$size", a) }
func first(a expr) bson.D { return on("$first", a) }
func minOf(a expr) bson.D { return on("$min", a) }
func maxOf(a expr) bson.D { return on("$max", a) }

// filter keeps the items of input for which when holds; the item is $$this.
func filter(input, when expr) bson.D {
	return on("$filter", doc(v("input", input), v("cond", when)))
}

// each maps the items of input; the item is $$this.
func each(input, to expr) bson.D {
	return on("$map", doc(v("input", input), v("in", to)))
}

// choose takes pairs of a condition and a value, and last the value if none holds.
func choose(pairs ...expr) expr {
	last := len(pairs) - 1
	out := pairs[last]
	for i := last - 2; i >= 0; i -= 2 {
		out = cond(pairs[i], pairs[i+1], out)
	}
	return out
}
