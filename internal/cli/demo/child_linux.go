package demo

import "syscall"

// childAttributes let a worker die with its parent, and keep Ctrl-C from it: the parent stops it in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
