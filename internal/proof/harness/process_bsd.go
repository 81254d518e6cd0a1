//go:build unix && !linux

package harness

import "syscall"

const sigStop, sigContinue = syscall.SIGSTOP, syscall.SIGCONT

// attributes keeps Ctrl-C from a process, because the parent ends it in order.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
