//go:build unix && !linux

package stack

import (
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing: only Linux can end a child with its parent.
func dieWithParent(*syscall.SysProcAttr) {}

// processStart returns the start time of the process with this PID, or fs.ErrNotExist if it has ended.
func processStart(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "stat=", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	state, start, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return "", fs.ErrNotExist
	}
	return strings.TrimSpace(start), nil
}

// listensOn always returns true, because this system has no /proc to find the process that listens.
func listensOn(int, int) (bool, error) { return true, nil }
