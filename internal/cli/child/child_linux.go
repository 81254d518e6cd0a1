// Package child has what the commands need that start themselves again as processes of their own.
package child

import "syscall"

// Attributes makes a process end with its parent, and keeps Ctrl-C from it, since the parent stops it in order.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
