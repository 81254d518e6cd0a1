// Package worker installs Lockstep in a Temporal worker, in one line.
package worker
