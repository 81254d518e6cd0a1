//go:build !unix

package stack

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

var errNoUnix = errors.New("this needs Linux or macOS; elsewhere use docker-compose.yml")

const sigContinue = syscall.SIGTERM

func tryLock(*os.File) (bool, error)                    { return false, errNoUnix }
func detach(*exec.Cmd)                                  {}
func bind(*exec.Cmd)                                    {}
func signalGroup(p *os.Process, _ syscall.Signal) error { return p.Kill() }
func processStart(int) (string, error)                  { return "", errNoUnix }
func listensOn(int, int) (bool, error)                  { return false, errNoUnix }
