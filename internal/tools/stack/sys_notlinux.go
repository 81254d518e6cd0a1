//go:build unix && !linux

package stack

import (
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has no equal outside Linux: a step whose parent was killed runs to its end there.
func dieWithParent(*syscall.SysProcAttr) {}

// processStart identifies the process that has this PID now by the time of its start. It is fs.ErrNotExist for a
// process that has ended.
func processStart(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "stat=", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	state, start, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || !ok || strings.HasPrefix(state, "Z") {
		return "", fs.ErrNotExist
	}
	return strings.TrimSpace(start), nil
}

// listensOn cannot be told without /proc: what answers on the port is taken for ours.
func listensOn(int, int) (bool, error) { return true, nil }
