package stack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// processStart returns the start time of the process with this PID, in clock ticks, and the ID of the boot from which the ticks
// count. No later process with the same PID has the same. It returns fs.ErrNotExist if the process has ended, even if its parent
// has not collected it, but not while one of its threads runs, because such a thread still occupies ports.
func processStart(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		return "", fs.ErrNotExist
	}
	if err != nil {
		return "", err
	}
	fields := statFields(stat)
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has an unknown form", pid)
	}
	if hasEnded(fields[0]) && !threadsRun(pid) {
		return "", fs.ErrNotExist
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}

// statFields returns the fields after the command, beginning with the state. The command is in parentheses and may contain any
// characters.
func statFields(stat []byte) []string {
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

func hasEnded(state string) bool { return state == "Z" || state == "X" }

func threadsRun(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if fields := statFields(stat); err == nil && len(fields) > 0 && !hasEnded(fields[0]) {
			return true
		}
	}
	return false
}

// listensOn reports whether the process listens on the port. An answer on the port is not enough: another program may have taken
// it first.
func listensOn(pid, port int) (bool, error) {
	sockets, err := listeningSockets(port)
	if err != nil {
		return false, err
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false, err
	}
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil && sockets[link] {
			return true, nil
		}
	}
	return false, nil
}

// listeningSockets returns the sockets that listen on a port, in the form of the links in /proc/PID/fd.
func listeningSockets(port int) (map[string]bool, error) {
	const listening = "0A"
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) >= 10 && fields[3] == listening && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+fields[9]+"]"] = true
			}
		}
	}
	return sockets, nil
}
