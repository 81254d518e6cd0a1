//go:build unix && !linux

package demo

import "syscall"

// childAttributes keeps Ctrl-C from a worker, since the parent stops it in order. A worker notices the end of its parent by the end of
// its standard input.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
