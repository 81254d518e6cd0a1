package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// tellLines bounds the number of lines in a report.
const tellLines = 60

// builds describes how many processes two builds had, and how many workflow runs both of them have worked for. It is empty if only one
// build played.
func builds(plan Plan, records []Record) string {
	if plan.Previous == nil {
		return ""
	}
	// Each map has the processes, or the runs whose workflow code wrote a record, by whether the build was the previous one.
	processes, runs := map[bool]set{true: {}, false: {}}, map[bool]set{true: {}, false: {}}
	for i := range records {
		r := &records[i]
		if !strings.HasPrefix(r.Process, "p") {
			continue
		}
		previous := strings.HasSuffix(r.Process, previousMark)
		processes[previous][r.Process] = true
		if r.Task != 0 {
			runs[previous][r.Run] = true
		}
	}
	all := maps.Clone(runs[false])
	maps.Copy(all, runs[true])
	return fmt.Sprintf(" (%d of %d processes of the previous build; both builds ran the code of %d of %d workflow runs)",
		len(processes[true]), len(processes[true])+len(processes[false]), len(runs[true])+len(runs[false])-len(all), len(all))
}

type set map[string]bool

// Report prints a violation and the records of the workflows that it involves, in time order.
func Report(out io.Writer, v *Violation, records []Record) {
	fmt.Fprintf(out, "VIOLATION %s: %s\n", v.Check, v.Text)
	var began int64
	if len(records) > 0 {
		began = records[0].At
	}
	execs := map[string]*Record{}
	var lines []string
	for i := range records {
		r := &records[i]
		about := r
		if r.What == Enter {
			execs[r.Exec] = r
		} else if r.Exec != "" && execs[r.Exec] != nil {
			about = execs[r.Exec]
		}
		ofProcess := r.What == Killed || r.What == Stopped || r.What == Resumed
		ofOtherCheck := r.What == Recorded || r.What == Holds && v.Check != "unknown" || r.What == Seen && v.Check != "places"
		if ofOtherCheck || !ofProcess && !slices.Contains(v.Involved, about.Workflow) {
			continue
		}
		mark := " "
		if v.At != 0 && r.At >= v.At && (i == 0 || records[i-1].At < v.At) {
			mark = ">"
		}
		lines = append(lines, fmt.Sprintf("%s%8.3f s  %s", mark, float64(r.At-began)/1e9, line(r, about)))
	}
	if len(lines) > tellLines {
		at := max(0, slices.IndexFunc(lines, func(l string) bool { return l[0] == '>' })-tellLines*3/4)
		at = min(at, len(lines)-tellLines)
		lines = lines[at : at+tellLines]
	}
	for _, l := range lines {
		fmt.Fprintln(out, short(l))
	}
}

// line formats a record. about is the Enter record of its attempt.
func line(r, about *Record) string {
	var b strings.Builder
	if about.Workflow != "" {
		fmt.Fprintf(&b, "%s %.4s ", about.Workflow[strings.LastIndex(about.Workflow, "_")+1:], about.Run)
	}
	if c := about.Call; c != nil {
		kind := "step"
		if about.Undo {
			kind = "undo"
		}
		fmt.Fprintf(&b, "%s %d#%d [%s] %s on %s", kind, c.Node.ID, about.Attempt, c.Instance, r.What, r.Process)
		if r.What == Enter {
			fmt.Fprintf(&b, " needs %v %s rule %v", c.Node.Needs, c.Kept, c.Node.Rule)
		}
	} else {
		fmt.Fprintf(&b, "%s %s %s", r.What, r.Scope, r.Other)
	}
	if r.Task != 0 {
		fmt.Fprintf(&b, " in task %d", r.Task)
	}
	for _, h := range r.Held {
		fmt.Fprintf(&b, " %s@%d", h.Resource, h.Fence)
	}
	if r.Type != "" || r.Error != "" {
		fmt.Fprintf(&b, " %s: %s", r.Type, r.Error)
	}
	return b.String()
}

func short(s string) string {
	const most = 260
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
