// Package docscheck checks that the documentation matches the code.
//
// Each check reads all files of the repository and returns problems with file and line:
//
//	Snippets   each Go block in a Markdown file compiles and is formatted
//	Links      each relative link has a target, and a heading if it names one
//	Tests      each named test exists
//	Targets    each named make target and environment variable exists
//	Commands   each named command and flag of lockstep exists
//	Places     no file names a path or a host of one machine
//
// The tests run the checks on this repository, and each check on a small tree that contains mistakes. The linter checks that
// exported names have comments.
//
// # Fragments of Go
//
// A block that begins with a package clause is compiled as it is. Other blocks are inserted into the file in the HTML comment
// before the block, at the line "...":
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
// A snippet must not import internal packages.
//
// # Parts of tested files
//
// A block after this comment must be part of the file, as whole lines. Readers then see the code that a test runs.
//
//	<!-- snippet from lockcore/plain_locks_test.go -->
package docscheck
