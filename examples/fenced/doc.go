// Package fenced shows how a fence protects from a lost lease: a process that stalls for longer than the lease lasts wakes up
// and writes, but the document refuses the write.
package fenced
