package harness

import "syscall"

// No process can be suspended here: sending these signals is an error.
const sigStop, sigContinue = syscall.Signal(-1), syscall.Signal(-2)

// attributes keeps Ctrl-C from a process, because the parent ends it in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
