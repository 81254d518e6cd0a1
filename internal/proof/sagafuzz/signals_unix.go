//go:build unix

package main

import (
	"os"
	"syscall"
)

// signalStop suspends a process, and signalContinue resumes it.
func signalStop(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func signalContinue(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
