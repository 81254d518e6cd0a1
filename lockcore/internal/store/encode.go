package store

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/temporal-lockstep/lockstep/lockcore/rules"
)

// maxDocument is the size in bytes of the largest document that MongoDB stores.
const maxDocument = 16 << 20

// encode returns the stored form of a document. Documents are encoded here and not by the driver:
// the options of the caller's client must not change the layout.
func encode(d *rules.Document) (bson.Raw, error) {
	if d.ID == "" || d.Version.N <= 0 || d.Version.R == "" {
		return nil, fmt.Errorf("the document %q has no ID or no version", d.ID)
	}
	stored := *d
	stored.At = time.Time{} // omitted
	var buf bytes.Buffer
	encoder := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	encoder.NilSliceAsEmpty()
	if err := encoder.Encode(&stored); err != nil {
		return nil, fmt.Errorf("encode the document %q: %w", d.ID, err)
	}
	if buf.Len() > maxDocument {
		return nil, fmt.Errorf("the document %q has %d bytes; at most %d can be stored", d.ID, buf.Len(), maxDocument)
	}
	return buf.Bytes(), nil
}

// encodeAll returns the stored forms of the new documents. It refuses swaps that cannot be sent.
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

// decode reads a stored document. Whatever the document contains, it returns an error that names it,
// and does not panic.
func decode(raw bson.Raw) (*rules.Document, error) {
	var d rules.Document
	err := bson.Unmarshal(raw, &d)
	if err == nil && (d.Version.N <= 0 || d.Version.R == "") {
		err = errors.New("it has no version")
	}
	if err != nil {
		return nil, fmt.Errorf("lockstep: the document %s cannot be decoded: %w", idOf(raw), err)
	}
	return &d, nil
}

// nameOf returns the _id of a document if it is a string.
func nameOf(raw bson.Raw) (name string, ok bool) {
	id, err := raw.LookupErr("_id")
	if err != nil {
		return "", false
	}
	return id.StringValueOK()
}

// idOf describes the _id of a document for an error message.
func idOf(raw bson.Raw) string {
	if name, ok := nameOf(raw); ok {
		return fmt.Sprintf("%q", name)
	}
	id, err := raw.LookupErr("_id")
	if err != nil {
		return "without an _id"
	}
	return "with the _id " + id.String()
}
