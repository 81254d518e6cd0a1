package lockcore_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// fill sets each exported string of a value, at any depth, and each error in it. Other fields keep their values.
func fill(v reflect.Value, text string) {
	switch {
	case v.Kind() == reflect.Pointer:
		fill(v.Elem(), text)
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field, text)
			}
		}
	case v.Kind() == reflect.Slice && v.CanSet():
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case v.Kind() == reflect.String && v.CanSet():
		v.SetString(text)
	case v.Kind() == reflect.Interface && v.CanSet():
		v.Set(reflect.ValueOf(errors.New(text)))
	}
}

// A program prints an error or a status as it is: no text of another party may control the terminal or begin a line.
func TestTexts_HostileFields_ArePrintable(t *testing.T) {
	t.Parallel()
	const namespace = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11/"
	for _, hostile := range []string{
		"\x1b[2J\x1b]0;title\a", "a\nlockstep: all is well\r", "\u202egnp.exe\u2066", "a\x00b", "\u2028\u200b\t\x7f\u009b31m", "\xff",
		"a\x1b waits for b\x1b on c\n, d\x1b waits", namespace + "%1b%0a waits for " + namespace + "%1b%00 on r", namespace + "%E2%80%AE",
	} {
		for _, state := range []lockcore.State{lockcore.StateHolding, lockcore.StateClaimed, lockcore.StateDraining, lockcore.StateWaiting} {
			h := lockcore.Holder{ExpiresIn: time.Minute}
			fill(reflect.ValueOf(&h), hostile)
			h.State = state
			requirePrintable(t, h)
			s := lockcore.Status{Holder: h}
			fill(reflect.ValueOf(&s), hostile)
			s.State = state
			requirePrintable(t, s)
		}
		for _, value := range []any{
			&lockcore.BusyError{}, &lockcore.LostError{}, &lockcore.SupersededError{}, &lockcore.DeadlockError{}, &lockcore.InvalidError{}, &lockcore.UnknownOutcomeError{},
			&lockcore.DamagedError{}, &lockcore.LayoutError{}, &lockcore.OtherRunError{}, &lockcore.FencedError{}, &lockcore.Deadlock{},
		} {
			fill(reflect.ValueOf(value), hostile)
			requirePrintable(t, value)
		}
	}
	require.EqualError(t, &lockcore.LostError{Resource: "r", LockID: "me", Reason: `Müller's "drill" \ 100 %`}, `lockstep: "me" lost its lock on "r": Müller's "drill" \ 100 %`)
	require.EqualError(t, &lockcore.LostError{Resource: "r", LockID: "me", Reason: "\x1b\n\x00\u202e"}, `lockstep: "me" lost its lock on "r": \x1b\n\x00\u202e`)
}

func requirePrintable(t *testing.T, value any) {
	t.Helper()
	text := fmt.Sprint(value)
	require.False(t, strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%T: %q", value, text)
}
