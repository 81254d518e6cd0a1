package mongoengine

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The words of the aggregation language that the pipelines use. Each returns an expression; strings that
// start with "$" are field paths or variables, and whatever a caller passed goes through lit.

type expr = any

func op(name string, args ...expr) bson.D { return bson.D{{Key: name, Value: bson.A(args)}} }

func lit(v any) bson.D { return bson.D{{Key: "$literal", Value: v}} }

func v(name string, value expr) bson.E { return bson.E{Key: name, Value: value} }

func doc(fields ...bson.E) bson.D { return fields }

// list is an array; never nil, which would be sent as null.
func list(items ...expr) bson.A { return append(bson.A{}, items...) }

// let names a value for in. DocumentDB evaluates the value anew at each mention, so it is for small ones;
// what is mentioned often becomes a stage of its own.
func let(vars bson.D, in expr) bson.D {
	return bson.D{{Key: "$let", Value: bson.D{{Key: "vars", Value: vars}, {Key: "in", Value: in}}}}
}

// stages is a pipeline that grows. Each set sees what the ones before it left in the temporary field t.
type stages bson.A

func (s *stages) set(vars ...bson.E) {
	fields := make(bson.D, len(vars))
	for i, e := range vars {
		fields[i] = bson.E{Key: "t." + e.Key, Value: e.Value}
	}
	*s = append(*s, bson.D{{Key: "$set", Value: fields}})
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
func add(a, b expr) bson.D     { return op("$add", a, b) }
func ifNull(a, b expr) bson.D  { return op("$ifNull", a, b) }
func concat(a ...expr) bson.D  { return op("$concatArrays", a...) }
func merge(a ...expr) bson.D   { return op("$mergeObjects", a...) }
func size(a expr) bson.D       { return bson.D{{Key: "$size", Value: a}} }
func first(a expr) bson.D      { return bson.D{{Key: "$first", Value: a}} }
func maximum(a ...expr) bson.D { return op("$max", a...) }

// filter keeps the items of input for which when holds; the item is $$i.
func filter(input, when expr) bson.D {
	return bson.D{{Key: "$filter", Value: bson.D{{Key: "input", Value: input}, {Key: "as", Value: "i"}, {Key: "cond", Value: when}}}}
}

// each maps the items of input; the item is $$i.
func each(input, in expr) bson.D {
	return bson.D{{Key: "$map", Value: bson.D{{Key: "input", Value: input}, {Key: "as", Value: "i"}, {Key: "in", Value: in}}}}
}

// none tells that input has no item for which when holds.
func none(input, when expr) bson.D { return eq(size(filter(input, when)), 0) }

// some tells that input has an item for which when holds.
func some(input, when expr) bson.D { return gt(size(filter(input, when)), 0) }

// isNull tells that a value is null or missing.
func isNull(a expr) bson.D { return eq(ifNull(a, nil), nil) }

// endless stands for the expiry of a promise that has no end, in comparisons only.
var endless = bson.DateTime(math.MaxInt64 / 4)

// alive tells that a promise with this expiry, null where it has no end, has not ended.
func alive(expiresAt expr) bson.D { return gt(ifNull(expiresAt, endless), "$$NOW") }

// later is the later of two ends, null being the latest.
func later(a, b expr) expr {
	if a == nil || b == nil {
		return nil
	}
	return cond(or(isNull(a), isNull(b)), nil, maximum(a, b))
}

// until is the end of a promise of ttl milliseconds made now.
func until(ttl int64) expr {
	if ttl == 0 {
		return nil
	}
	return add("$$NOW", ttl)
}

// choose takes pairs of a condition and a value, and last the value where none holds.
func choose(pairs ...expr) expr {
	last := len(pairs) - 1
	out := pairs[last]
	for i := last - 2; i >= 0; i -= 2 {
		out = cond(pairs[i], pairs[i+1], out)
	}
	return out
}

// ttlEnd is until, for a stored TTL.
func ttlEnd(ttl expr) expr {
	return cond(eq(ifNull(ttl, int64(0)), int64(0)), nil, add("$$NOW", ttl))
}
