//go:build unix

package main

import (
	"os"
	"syscall"
)

// signalStop stops a process where it is, and signalContinue has it go on.
func signalStop(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func signalContinue(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
