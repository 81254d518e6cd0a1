// Package fenced shows what a lost lease can do, and what a fence does about it: a process that stalls for longer than its lock
// lives wakes up and writes, and the document refuses it.
package fenced
