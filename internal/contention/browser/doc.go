// Package browser has no code but its tests: they open the page of the contention report in a real browser.
//
// It is a module of its own, so that who uses Lockstep does not get a browser's driver among the dependencies, and is run by
// `.ci/run browser`. The browser is Debian's chromium; where it is missing, the tests fail and say how to get it.
// LOCKSTEP_SCREENSHOTS names a folder for pictures of the page, in light and dark, wide and narrow.
package browser
