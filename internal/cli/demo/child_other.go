//go:build !linux

package demo

import "syscall"

// childAttributes: elsewhere a worker notices that its parent is gone by the end of its standard input.
func childAttributes() *syscall.SysProcAttr { return nil }
