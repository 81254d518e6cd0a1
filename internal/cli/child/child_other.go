//go:build !linux

// Package child has what the commands need that start themselves again as processes of their own.
package child

import "syscall"

// Attributes has no equivalent here: a process notices the end of its parent by the end of its standard input.
func Attributes() *syscall.SysProcAttr { return nil }
