// Package browser has only tests. They open two pages in a real browser: that of the contention report and that of `lockstep ui`.
//
// It is a module of its own, so that the users of Lockstep do not depend on a browser's driver. `.ci/run browser` runs it. The browser is
// Debian's chromium; without it the tests fail, and report how to install it. The tests of `lockstep ui` need no server: they keep locks in
// memory. LOCKSTEP_SCREENSHOTS names a folder for pictures, in light and dark. Those of `lockstep ui` in docs/pictures are made, at the
// root of the repository, by
//
//	LOCKSTEP_SCREENSHOTS=$PWD/docs/pictures go test -C internal/cli/contention/browser -count=1 -run UI_Widths .
package browser
