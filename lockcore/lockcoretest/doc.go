// Package lockcoretest helps to test programs that use locks. [Store] keeps locks in memory, so such a
// test needs no server, and [Clock] decides what time it is.
package lockcoretest
