// Package inspect says who holds locks and who waits, in the words of those who operate a system: by
// workflow, with what Temporal knows of it. It changes nothing.
package inspect
