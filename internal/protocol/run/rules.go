package run

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/temporal-lockstep/lockstep/internal/protocol"
)

// Rule says which locks the activities of one type take, in every workflow that runs on a worker which has it.
type Rule struct {
	// Activity is the type's name.
	Activity string
	// Input is the type of the activity's first argument; nil where the rule does not look at it.
	Input reflect.Type
	// Locks are those of an activity with that argument.
	Locks func(input any) Locks
	// IsElsewhere says that the activity runs on other workers than the one that has the rule; see [Rule.Elsewhere]. IsRetired says that the
	// rule guards nothing any more; see [Rule.Retired].
	IsElsewhere, IsRetired bool
}

// Elsewhere returns the rule for a worker that runs activities, but not those of this type: it is not an error then
// that the type is unknown there.
func (r Rule) Elsewhere() Rule {
	r.IsElsewhere = true
	return r
}

// Retired returns the rule for the time until the last workflow run has ended that began under it: steps are not guarded
// any more, and the waits and releases that stand in the histories of such runs go on being made. Without that time such runs
// cannot be replayed.
func (r Rule) Retired() Rule {
	r.IsRetired = true
	return r
}

// versionRules begins the change IDs of rules, for locks that outlive a step: so a run which was in flight when the rule came
// makes no command that its history does not have, and one which began under the rule makes its release whatever the rule's
// scope is now. In sagas there is one for each activity type, asked for at the first such step of a run. Elsewhere the step's
// number follows, and steps ask until one has it.
const versionRules = "lockstep.rules/"

// wanted are the locks that a step asks for, by its context or else by a rule.
func (s *State) wanted(ctx workflow.Context, activityType string, args []any) (*Locks, *protocol.InvalidDetails) {
	if l, said := ctx.Value(locksKey{}).(*Locks); said { // none, where it is nil
		if l != nil && l.KeepAlive {
			return nil, keptAlive
		}
		return l, nil
	}
	rule, ok := s.Rules[activityType]
	if !ok {
		return nil, nil
	}
	input, refused := rule.input(args)
	if refused != nil {
		return nil, refused
	}
	l := rule.Locks(input)
	if l.KeepAlive {
		return nil, keptAlive
	}
	if l.FromWorkflow {
		return nil, &protocol.InvalidDetails{Field: "Locks.FromWorkflow", Value: "true", Bound: "false in a rule: it would add commands to runs in flight"}
	}
	if !s.outlive(ctx, activityType, &l) {
		l.Scope = protocol.ScopeStep
	}
	l.retired = rule.IsRetired
	return &l, nil
}

// outlive tells whether a rule's locks may outlive their step in this run, and sees to their release where what stands in the
// history makes one, whatever the rule's scope is now.
func (s *State) outlive(ctx workflow.Context, activityType string, l *Locks) bool {
	scope, inSaga := s.scope(ctx)
	switch {
	case inSaga:
		if workflow.GetVersion(ctx, versionRules+activityType, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
			return false
		}
	case !s.ruled.has(activityType):
		// Each step asks by a change ID of its own: one that a replay asks for, and the run did not, may not be asked for later.
		if s.kind(ctx, l) != protocol.ScopeSaga && !workflow.IsReplaying(ctx) {
			return true
		}
		id := fmt.Sprintf("%s%s/%d", versionRules, activityType, s.steps)
		if workflow.GetVersion(ctx, id, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
			return false
		}
		s.ruled.add(activityType)
	}
	scope.want(l.Resources)
	return true
}

// keptAlive refuses what would be passed over: a step renews its locks itself.
var keptAlive = &protocol.InvalidDetails{Field: "Locks.KeepAlive", Value: "true", Bound: "false for steps: it is for workflows.Lock"}

// kind is the scope of locks under ctx.
func (s *State) kind(ctx workflow.Context, l *Locks) string {
	switch _, inSaga := s.scope(ctx); {
	case l.Scope != "":
		return l.Scope
	case inSaga:
		return protocol.ScopeSaga
	default:
		return protocol.ScopeStep
	}
}

// Misfit tells why the rule cannot look at the arguments of an activity whose first one is of type t; t is nil where it has none. It
// returns "" where it can, and where only an argument itself could tell.
func (r *Rule) Misfit(t reflect.Type) (why string) {
	switch {
	case r.Input == nil || r.Input.Kind() == reflect.Interface: // looks at nothing, or at anything
		return ""
	case t == nil:
		return "no argument"
	case t.Kind() == reflect.Interface || pointedTo(t) == pointedTo(r.Input):
		return ""
	}
	defer func() {
		if recover() != nil { // a method of the type, which does not know what to do with this sample
			why = ""
		}
	}()
	if name := unknownField(pointedTo(t), pointedTo(r.Input)); name != "" {
		return fmt.Sprintf("a %v, which has %q beside what the rule knows", t, name)
	}
	_, err := r.convert(sample(t))
	// Any other error is one of the type's own methods about this sample.
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) || errors.Is(err, errBytes) || err != nil && strings.Contains(err.Error(), "unknown field") {
		return fmt.Sprintf("a %v (%s)", t, protocol.Cut(err.Error(), 128))
	}
	return ""
}

func pointedTo(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// unknownField is a field that one struct has in its JSON, and the other does not. A sample leaves out those with omitempty.
func unknownField(of, to reflect.Type) string {
	if of.Kind() != reflect.Struct || to.Kind() != reflect.Struct || hasOwnJSON(of) || hasOwnJSON(to) {
		return ""
	}
	known := jsonFields(to)
	for _, name := range jsonFields(of) {
		if !slices.ContainsFunc(known, func(other string) bool { return strings.EqualFold(name, other) }) {
			return name
		}
	}
	return ""
}

// hasOwnJSON tells whether the type's methods say what its JSON is.
func hasOwnJSON(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	for _, i := range []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if p.Implements(i) {
			return true
		}
	}
	return false
}

func jsonFields(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-" || !f.IsExported():
		case f.Anonymous && tag == "" && pointedTo(f.Type).Kind() == reflect.Struct: // its fields are visible too
		default:
			names = append(names, cmp.Or(tag, f.Name))
		}
	}
	return names
}

// sample is a value of the type t that is not nil, where it can be.
func sample(t reflect.Type) any {
	switch t.Kind() {
	case reflect.Pointer:
		return reflect.New(t.Elem()).Interface()
	case reflect.Map:
		return reflect.MakeMap(t).Interface()
	case reflect.Slice:
		return reflect.MakeSlice(t, 0, 0).Interface()
	}
	return reflect.Zero(t).Interface()
}

// input is the argument that the rule looks at, as its type.
//
//workflowcheck:ignore JSON has the keys of a map in order, and the same argument gives the same input
func (r *Rule) input(args []any) (any, *protocol.InvalidDetails) {
	if r.Input == nil {
		return nil, nil
	}
	wrong := func(value string) *protocol.InvalidDetails {
		return &protocol.InvalidDetails{
			Field: fmt.Sprintf("the first argument of activity %q", r.Activity), Value: value, Bound: "a " + r.Input.String() + ", as its rule wants",
		}
	}
	if len(args) == 0 {
		return nil, wrong("none")
	}
	in, err := r.convert(args[0])
	if err != nil {
		return nil, wrong(fmt.Sprintf("a %T (%s)", args[0], protocol.Cut(err.Error(), 128)))
	}
	return in, nil
}

var (
	errNull = errors.New("null")
	// errBytes is of bytes whose JSON, base64, would name another resource than they do as text.
	errBytes = errors.New("bytes, and no text")
)

// convert makes an argument one of the rule's type. A workflow may pass another type with the same JSON.
func (r *Rule) convert(arg any) (any, error) {
	if v := reflect.ValueOf(arg); v.IsValid() {
		switch {
		case v.Kind() == reflect.Pointer && v.IsNil():
			return nil, errNull
		case v.Type().AssignableTo(r.Input):
			return arg, nil
		case v.Kind() == reflect.Pointer && v.Type().Elem().AssignableTo(r.Input):
			return v.Elem().Interface(), nil
		case reflect.PointerTo(v.Type()).AssignableTo(r.Input):
			p := reflect.New(v.Type())
			p.Elem().Set(v)
			return p.Interface(), nil
		case v.Type() == reflect.TypeFor[[]byte]() && pointedTo(r.Input).Kind() == reflect.String:
			return nil, errBytes
		}
	}
	text, err := json.Marshal(arg)
	if err != nil {
		return nil, err
	}
	if string(text) == "null" {
		return nil, errNull
	}
	// A field that the rule does not know would leave those that it looks at empty, and lock something else.
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	into := reflect.New(r.Input)
	if err := d.Decode(into.Interface()); err != nil {
		return nil, err
	}
	return into.Elem().Interface(), nil
}
