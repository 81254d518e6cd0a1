package demo

import "syscall"

// childAttributes makes a worker end with its parent, and keeps Ctrl-C from it, since the parent stops it in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
