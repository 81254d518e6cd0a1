// Package page writes the report of contention as one HTML file, for people.
//
// The file is self-contained: script, style and data stand in it, and a Content-Security-Policy in its head forbids every source of
// the network, so it opens from a folder, an attachment or a CI's artifacts, and sends nothing to anybody. What is read into it is not
// trusted: names of resources and owners are whatever was locked. Three things keep them text: the data is JSON in which
// <, > and & are escaped, in an element that is not run; the script only ever sets textContent; and the policy names the checksums
// of the page's own scripts, so that nothing else would run if the first two failed.
//
// The page is bounded ([Options.MaxHolds]), and says what was left out. Percentages and sums are always those of the whole report.
//
// assets holds the page as it is written by hand: page.html is a template, page.css the style, and the scripts are joined in the order of
// [scripts]. charts holds Apache ECharts, reduced to what is used; build makes it again. Neither Node nor npm is needed to build
// or to test Lockstep. docs/adr/0006-charts.md says why this library.
package page
