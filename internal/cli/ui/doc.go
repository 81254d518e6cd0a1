// Package ui serves a read-only page about who holds locks and who waits, with the commands that would
// repair what is seen. The server writes all of the HTML; a script only asks for the same page again
// and puts it in place, so that it works without one.
package ui
