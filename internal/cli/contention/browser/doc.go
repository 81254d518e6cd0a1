// Package browser has no code but its tests: they open two pages in a real browser, that of the
// contention report and that of `lockstep ui`.
//
// It is a module of its own, so that a browser's driver is not among the dependencies of Lockstep's
// users, and is run by `.ci/run browser`. The browser is Debian's chromium; if it is missing, the
// tests fail and say how to get it. The tests of `lockstep ui` need no server: they bring what it
// shows. LOCKSTEP_SCREENSHOTS names a folder for pictures of the report's page, in light and dark,
// wide and narrow.
package browser
