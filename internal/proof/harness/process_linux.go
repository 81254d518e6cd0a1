package harness

import "syscall"

const sigStop, sigContinue = syscall.SIGSTOP, syscall.SIGCONT

// attributes makes a process end with its parent, and keeps Ctrl-C from it, because the parent ends it in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
