// Package ui serves a read-only page that shows who holds locks and who waits, with the commands that would repair what
// it shows. The server writes all of the HTML. A script only fetches the same page again and replaces the content, and adds
// a reason to a command, so the page also works without it.
package ui
