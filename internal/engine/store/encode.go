package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

// maxDocument is the size in bytes of the largest document that MongoDB stores.
const maxDocument = 16 << 20

// encode returns the stored form of a document. The driver's encoder is not used, because the options of
// the caller's client must not change the layout, and because it is five times slower for a queue of
// 1,000 waiters: it looks up the methods of every value's type.
func encode(d *rules.Document) (bson.Raw, error) {
	if d.ID == "" || d.Version.N <= 0 || d.Version.R == "" {
		return nil, fmt.Errorf("the document %q has no ID or no version", d.ID)
	}
	stored := *d
	stored.At = time.Time{} // omitted
	raw := appendFields(make([]byte, 0, 1024+160*len(d.Waiters)+512*len(d.Entries)), reflect.ValueOf(&stored).Elem())
	if len(raw) > maxDocument {
		return nil, fmt.Errorf("the document %q has %d bytes; at most %d can be stored", d.ID, len(raw), maxDocument)
	}
	return raw, nil
}

// field describes a stored field of a struct by its tag.
type field struct {
	key       string
	omitEmpty bool
	index     int
	// inline are the fields of a struct that is stored inline, which has no key.
	inline []field
}

// fieldsOf returns the stored fields of a struct type in order.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	for i := range t.NumField() {
		key, option, _ := strings.Cut(t.Field(i).Tag.Get("bson"), ",")
		switch {
		case key == "-":
		case option == "inline":
			fields = append(fields, field{index: i, inline: fieldsOf(t.Field(i).Type)})
		case key == "":
			panic(fmt.Sprintf("lockstep: the field %s of %s has no stored name", t.Field(i).Name, t))
		default:
			fields = append(fields, field{key: key, omitEmpty: option == "omitempty", index: i})
		}
	}
	knownFields.Store(t, fields)
	return fields
}

var knownFields sync.Map // reflect.Type to []field

// appendFields appends a struct as a BSON document.
func appendFields(dst []byte, v reflect.Value) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	return endDocument(appendElements(dst, v, fieldsOf(v.Type())), start)
}

func appendElements(dst []byte, v reflect.Value, fields []field) []byte {
	for i := range fields {
		f := &fields[i]
		value := v.Field(f.index)
		switch {
		case f.inline != nil:
			dst = appendElements(dst, value, f.inline)
		case !f.omitEmpty || !isEmpty(value):
			dst = appendElement(dst, f.key, value)
		}
	}
	return dst
}

func isEmpty(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Slice && v.Len() == 0)
}

func endDocument(dst []byte, start int) []byte {
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start)) //nolint:gosec // far less than 4 GB
	return dst
}

// appendElement appends a value of one of the types that package rules stores.
func appendElement(dst []byte, key string, v reflect.Value) []byte {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	begin := func(t bson.Type) {
		dst = append(dst, byte(t))
		dst = append(append(dst, key...), 0)
	}
	switch v.Kind() {
	case reflect.String:
		begin(bson.TypeString)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(v.Len()+1)) //nolint:gosec // limited by package lockcore
		return append(append(dst, v.String()...), 0)
	case reflect.Int64:
		begin(bson.TypeInt64)
		return binary.LittleEndian.AppendUint64(dst, uint64(v.Int())) //nolint:gosec // the same bits
	case reflect.Bool:
		begin(bson.TypeBoolean)
		if v.Bool() {
			return append(dst, 1)
		}
		return append(dst, 0)
	case reflect.Slice:
		begin(bson.TypeArray)
		start := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		for i := range v.Len() {
			dst = appendElement(dst, strconv.Itoa(i), v.Index(i))
		}
		return endDocument(dst, start)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			begin(bson.TypeDateTime)
			t := v.Addr().Interface().(*time.Time)
			return binary.LittleEndian.AppendUint64(dst, uint64(t.UnixMilli()))
		}
		begin(bson.TypeEmbeddedDocument)
		return appendFields(dst, v)
	default:
		panic(fmt.Sprintf("lockstep: the field %s has the kind %s, which is not stored", key, v.Kind()))
	}
}

// encodeAll returns the stored forms of the new documents. Its errors match ErrNotSent.
func encodeAll(swaps []Swap) ([]bson.Raw, error) {
	if len(swaps) > MaxSwaps {
		return nil, fmt.Errorf("%w: swap %d documents: at most %d can be swapped at once", ErrNotSent, len(swaps), MaxSwaps)
	}
	encoded := make([]bson.Raw, len(swaps))
	for i, s := range swaps {
		raw, err := encode(s.Next)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		encoded[i] = raw
	}
	return encoded, nil
}

// decode reads a stored document. It does not panic, whatever the document contains. Its errors are
// *DamagedErrors.
func decode(raw bson.Raw) (*rules.Document, error) {
	d, err := decodeFields(raw)
	if err == nil {
		err = checkWritten(d)
	}
	if err != nil {
		return nil, &DamagedError{Resource: IDOf(raw), Err: err}
	}
	return d, nil
}

// add decodes a document.
func (l *Loaded) add(name string, raw bson.Raw) {
	d, err := decode(raw)
	if err != nil {
		if l.Damaged == nil {
			l.Damaged = map[string]error{}
		}
		l.Damaged[name] = err
		return
	}
	l.Docs[name] = d
}

// complete gives all documents the time of the identity, and their policies. Through a router, the time in each document is
// the clock of its own shard, and what is decided by two of them contradicts itself.
func (l *Loaded) complete() {
	for name, d := range l.Docs {
		d.At, d.Policy = l.At, l.Identity.Policies.For(name, l.At)
	}
}

// decodeFields reads a document that may lack fields, because the query did not request them.
func decodeFields(raw bson.Raw) (*rules.Document, error) {
	var d rules.Document
	name, isName := nameOf(raw)
	err := bson.Unmarshal(raw, &d)
	switch {
	case !isName || name == "":
		err = errors.New("its _id is not the name of a resource")
	case err == nil && (d.Version.N <= 0 || d.Version.R == ""):
		err = errors.New("it has no version")
	}
	return &d, err
}

// checkWritten returns an error about a document that no client can have written, because no write could follow, or no request could end what
// it contains.
func checkWritten(d *rules.Document) error {
	switch {
	case len(d.ID) > MaxName:
		return fmt.Errorf("its _id has %d bytes, and the name of a resource has at most %d", len(d.ID), MaxName)
	case !isText(d.ID):
		return errors.New("its _id is not the name of a resource: it has a NUL, or is not valid UTF-8")
	case d.Version.N == math.MaxInt64:
		return errors.New("its version is the greatest, so that no write can follow")
	}
	for i := range d.Entries {
		switch e := &d.Entries[i]; {
		case e.LockID == "" || len(e.LockID) > MaxLockID || !isText(e.LockID):
			return fmt.Errorf("entries[%d].lockId has %d bytes, and a lock ID has 1 to %d of valid UTF-8 without NUL", i, len(e.LockID), MaxLockID)
		case e.FirstFence < 0 || e.FirstFence == 0 && e.Holds():
			return fmt.Errorf("entries[%d].firstFence is %d, and the first fence of a hold is positive", i, e.FirstFence)
		}
	}
	return nil
}

// isText reports whether a string can be in a request.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// nameOf returns the _id of a document if it is a string.
func nameOf(raw bson.Raw) (name string, ok bool) {
	id, err := raw.LookupErr("_id")
	if err != nil {
		return "", false
	}
	return id.StringValueOK()
}

// IDOf returns the _id of a document if it is a string, or else describes it: at most 200 bytes of extended JSON.
func IDOf(raw bson.Raw) string {
	if name, ok := nameOf(raw); ok {
		return name
	}
	id, err := raw.LookupErr("_id")
	if err != nil {
		return ""
	}
	text := id.String()
	return strings.ToValidUTF8(text[:min(len(text), 200)], "")
}
