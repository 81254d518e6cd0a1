package wire

import (
	"reflect"
	"runtime"
	"strings"
)

// FuncName is the name under which the SDK registers a function or a method, if none is given. f must be a func.
func FuncName(f reflect.Value) string {
	name := runtime.FuncForPC(f.Pointer()).Name()
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
}
