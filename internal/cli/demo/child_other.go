//go:build !linux

package demo

import "syscall"

// childAttributes has no equivalent here: a worker notices the end of its parent by the end of its standard input.
func childAttributes() *syscall.SysProcAttr { return nil }
