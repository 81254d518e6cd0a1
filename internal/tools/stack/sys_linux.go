package stack

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// tcpListen is the state of a listening socket in /proc/net/tcp.
const tcpListen = "0A"

func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// processStart identifies the process that has this PID now: its start in clock ticks, which no later process with the
// same PID shares, and the boot that the ticks count from. It is fs.ErrNotExist for a process that has ended, also when
// it has not been collected yet, but not before its last thread has: until then it holds its ports.
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
	if ended(fields[0]) && !threadsLeft(pid) {
		return "", fs.ErrNotExist
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}

// statFields returns the fields after the command, of which the first is the state. The command is in brackets, and may
// hold anything, also brackets and blanks.
func statFields(stat []byte) []string {
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

func ended(state string) bool { return state == "Z" || state == "X" }

func threadsLeft(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if fields := statFields(stat); err == nil && len(fields) > 0 && !ended(fields[0]) {
			return true
		}
	}
	return false
}

// listensOn reports whether this very process listens on the port: an answer on it proves nothing when another program
// took the port first.
func listensOn(pid, port int) (bool, error) {
	inodes, err := listeners(port)
	if err != nil {
		return false, err
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false, err
	}
	for _, fd := range fds {
		link, err := os.Readlink(fd)
		if err != nil {
			continue // closed since
		}
		if inode, ok := strings.CutPrefix(link, "socket:["); ok && inodes[strings.TrimSuffix(inode, "]")] {
			return true, nil
		}
	}
	return false, nil
}

func listeners(port int) (map[string]bool, error) {
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || fields[3] != tcpListen {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				inodes[fields[9]] = true
			}
		}
		f.Close()
	}
	return inodes, nil
}
