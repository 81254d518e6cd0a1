package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is the unit of times in /proc: Linux reports a hundredth of a second to programs.
const tick = 10 * time.Millisecond

// processorTime returns the processor time that processes and their descendants have used so far. It is 0 for no processes.
func processorTime(roots []int) (time.Duration, error) {
	if len(roots) == 0 {
		return 0, nil
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	used, children := map[int]time.Duration{}, map[int][]int{}
	for _, file := range files {
		stat, err := os.ReadFile(file) //nolint:gosec // of /proc
		if err != nil {
			continue // the process has ended
		}
		pid, parent, ticks, err := parseStat(stat)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		used[pid], children[parent] = time.Duration(ticks)*tick, append(children[parent], pid)
	}
	var sum time.Duration
	for all := roots; len(all) > 0; all = all[1:] {
		sum += used[all[0]]
		all = append(all, children[all[0]]...)
	}
	return sum, nil
}

// parseStat reads a process's stat: its times, with those of its children that have ended.
func parseStat(stat []byte) (pid, parent int, ticks int64, err error) {
	before, _, _ := bytes.Cut(stat, []byte(" "))
	if pid, err = strconv.Atoi(string(before)); err != nil {
		return 0, 0, 0, err
	}
	// The program's name, in parentheses, may contain anything. The state follows it, then the parent.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0, 0, 0, fmt.Errorf("only %d fields", len(fields))
	}
	if parent, err = strconv.Atoi(string(fields[1])); err != nil {
		return 0, 0, 0, err
	}
	for _, field := range fields[11:15] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, 0, 0, err
		}
		ticks += n
	}
	return pid, parent, ticks, nil
}
