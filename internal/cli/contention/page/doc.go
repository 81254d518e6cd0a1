// Package page writes a contention report as one HTML file for people.
//
// The file is self-contained: it includes script, style and data, and its Content-Security-Policy forbids every network access. It opens
// from a folder, an attachment or a CI's artifacts, and sends nothing. The names in it are not trusted: resources and owners are named by
// the users of locks. Three things keep names text: the data is JSON in which <, > and & are escaped, in an element that is not run; the
// script only sets textContent; and the policy allows only scripts with the checksums of the page's own.
//
// The page is bounded ([Options.MaxHolds]) and reports what was left out. Percentages and sums are always those of the whole report.
//
// The folder assets has the page's template, style and scripts, which are joined in the order of [scripts]. The folder charts has Apache
// ECharts, reduced to the parts in use; build/build.sh makes it again. Neither Node nor npm is needed to build or test Lockstep.
//
// ECharts has custom shapes, zoom and a canvas, on which ten thousand holds move smoothly. A library with one element of the page for each bar
// is too slow, and so is a series with one datum for each: one custom series with a single datum draws the visible window. What the canvas
// shows is also in lists and links, for screen readers.
package page
