package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/temporal-lockstep/lockstep/internal/engine/clock"
	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

const (
	// changeTries bounds how often a change of the identity is tried that others may prevent, and changePause is the time
	// between two tries.
	changeTries = 10
	changePause = 100 * time.Millisecond
)

// adopt returns the policies of the version that a read of the identity has found. If they are not the policies that the store
// knows, it sends one find for them.
func (m *Mongo) adopt(ctx context.Context, version rules.Version) (*rules.Policies, error) {
	known := m.policies.Load()
	switch {
	case version == (rules.Version{}): // there are none, perhaps not any longer: the collection was dropped
		m.policies.Store(nil)
		return nil, nil //nolint:nilnil // which has no policy
	case known != nil && known.Version == version:
		return known, nil
	}
	var raw bson.Raw
	err := send(ctx, "read the policies of "+m.local.Name(), func(ctx context.Context) (err error) {
		raw, err = m.local.FindOne(ctx, bson.D{{Key: "_id", Value: IdentityID}},
			options.FindOne().SetProjection(bson.D{{Key: "policyVersion", Value: 1}, {Key: "policies", Value: 1}, {Key: "policyChanges", Value: 1}})).Raw()
		return err
	})
	if err != nil {
		return nil, err
	}
	found := decodePolicies(raw)
	m.policies.Store(found)
	return found, nil
}

// decodePolicies decodes each policy for itself, so that one that cannot be decoded hides no other.
func decodePolicies(raw bson.Raw) *rules.Policies {
	var p rules.Policies
	if version, ok := raw.Lookup("policyVersion").DocumentOK(); ok {
		_ = bson.Unmarshal(version, &p.Version) // a version that is none differs from that of every read
	}
	for _, value := range elements(raw, "policies") {
		p.List = append(p.List, decodePolicy(value))
	}
	for _, value := range elements(raw, "policyChanges") {
		var change rules.PolicyChange
		if value.Unmarshal(&change) == nil { // the audit decides nothing
			p.Changes = append(p.Changes, change)
		}
	}
	return &p
}

// elements returns the elements of an array in a document.
func elements(raw bson.Raw, field string) []bson.RawValue {
	array, _ := raw.Lookup(field).ArrayOK()
	values, _ := array.Values()
	return values
}

// decodePolicy returns a policy. One with a field that this version does not know, or with a value that no client can have
// written, is Unreadable: it is for its name if that can be read, and for all resources otherwise.
func decodePolicy(value bson.RawValue) (p rules.Policy) {
	raw, _ := value.DocumentOK()
	if isPolicy(raw) && bson.Unmarshal(raw, &p) == nil && p.Valid() {
		return p
	}
	p = rules.Policy{}
	name, named := raw.Lookup("name").StringValueOK()
	prefix, _ := raw.Lookup("prefix").BooleanOK()
	p.PolicyID, p.Unreadable = rules.PolicyID{Name: name, Prefix: prefix || !named}, true
	return p
}

// isPolicy reports whether a document has only fields of a policy, and its members only those of a member.
func isPolicy(raw bson.Raw) bool {
	for _, member := range elements(raw, "members") {
		if m, ok := member.DocumentOK(); !ok || !hasOnly(m, "name", "out", "reason") {
			return false
		}
	}
	return hasOnly(raw, "name", "prefix", "limit", "members", "until", "by", "at", "reason")
}

// hasOnly reports whether a document has no other fields than these.
func hasOnly(raw bson.Raw, names ...string) bool {
	fields, err := raw.Elements()
	return err == nil && !slices.ContainsFunc(fields, func(e bson.RawElement) bool { return !slices.Contains(names, e.Key()) })
}

// SetPolicy changes the stored policies by an update of the identity, and leaves policies that it cannot decode as they are.
func (m *Mongo) SetPolicy(ctx context.Context, change rules.PolicyChange) error {
	return m.ChangeIdentity(ctx, func(raw bson.Raw, identity *rules.Identity) (bson.D, error) {
		change.At = identity.At
		next := decodePolicies(raw)
		if err := next.Change(&change); err != nil {
			return nil, err
		}
		stored := elements(raw, "policies")
		policies := make(bson.A, len(next.List))
		for i, p := range next.List {
			policies[i] = p
			for n := 0; n < len(stored) && p.Unreadable; n++ {
				if was := decodePolicy(stored[n]); was.Unreadable && was.PolicyID == p.PolicyID {
					policies[i] = stored[n]
				}
			}
		}
		next.Version.R = rand.Text()
		return bson.D{
			{Key: "version", Value: rules.PolicyLayout}, {Key: "policyVersion", Value: next.Version},
			{Key: "policies", Value: policies}, {Key: "policyChanges", Value: next.Changes},
		}, nil
	})
}

// ChangeIdentity reads the identity, and sends one update of the fields that change returns. If another process has changed
// it in between, it repeats both after a pause. It compares what is stored: the fields may contain more than this version
// decodes.
func (m *Mongo) ChangeIdentity(ctx context.Context, change func(raw bson.Raw, identity *rules.Identity) (bson.D, error)) error {
	for range changeTries {
		identity, err := m.Identify(ctx)
		if err != nil {
			return err
		}
		var was bson.Raw
		err = send(ctx, "read the identity of "+m.local.Name(), func(ctx context.Context) (err error) {
			was, err = m.local.FindOne(ctx, bson.D{{Key: "_id", Value: IdentityID}}).Raw()
			return err
		})
		if err != nil {
			return err
		}
		set, err := change(was, &identity)
		if err != nil {
			return err
		}
		filter := bson.D{{Key: "_id", Value: IdentityID}}
		for _, field := range []string{"id", "epoch", "replaces", "policyVersion"} {
			filter = append(filter, SameField(was, field))
		}
		matched := false
		err = send(ctx, "change the identity of "+m.local.Name(), func(ctx context.Context) error {
			res, err := m.local.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: set}})
			matched = err == nil && res.MatchedCount > 0
			return err
		})
		if err != nil || matched {
			return err
		}
		if !clock.Sleep(ctx, clock.Real{}, changePause) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("lockstep: the identity of %s, its document with the _id %d, was changed by others %d times while this call tried to change it: repeat it when no other change runs",
		m.local.Name(), IdentityID, changeTries)
}

// SameField returns a condition that a field still has the value that it has in a document, even if the value is an array or looks like an operator.
func SameField(was bson.Raw, field string) bson.E {
	value, err := was.LookupErr(field)
	if err != nil {
		return bson.E{Key: field, Value: nil}
	}
	return bson.E{Key: field, Value: bson.D{{Key: "$in", Value: bson.A{value}}}}
}
