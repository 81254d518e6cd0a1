// Package browser has only tests. They open two pages in a real browser: that of the contention report and that of `lockstep ui`.
//
// It is a module of its own, so that the users of Lockstep do not depend on a browser's driver. `.ci/run browser` runs it. The browser is
// Debian's chromium; without it the tests fail, and report how to install it. The tests of `lockstep ui` need no server: they keep locks in
// memory. LOCKSTEP_SCREENSHOTS names a folder for pictures of the report's page, in light and dark, wide and narrow.
package browser
