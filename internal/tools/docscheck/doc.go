// Package docscheck holds the repository's words to its code.
//
// What a reader of the documentation copies must compile, run and exist. Each check here looks at the whole tree, and
// answers with what it found wrong, by file and line:
//
//	Snippets   every block of Go in a Markdown file compiles and is formatted
//	Links      every relative link leads to a file, and to a heading if it names one
//	Tests      every test that is named exists
//	Exported   every exported name of a package that users import is documented
//	Targets    every `make` target and every variable of the environment that is named exists
//	Commands   every command and flag of lockstep that is named exists
//	Defaults   the table of settings says what the code does
//	Payloads   every example of an activity's JSON is what it reads or writes, and every field is named
//	Places     no file names a place that only one machine has
//
// The tests run them on this repository, and each on a small tree in which it must find something.
//
// # Snippets that are fragments
//
// A block that begins with a package clause is compiled as it is. Any other stands in a file that an HTML comment right
// before it gives, at the line that says "...":
//
//	<!-- snippet
//	package main
//
//	import "context"
//
//	func f(ctx context.Context) error {
//		...
//	}
//	-->
//
// A snippet may import what users may: nothing internal.
//
// # Snippets that are run
//
// A block after the comment
//
//	<!-- snippet from lockcore/plain_locks_test.go -->
//
// stands in that file word for word, as whole lines. So what a test runs and what a reader sees are the same.
package docscheck
