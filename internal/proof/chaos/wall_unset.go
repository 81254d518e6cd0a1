//go:build !wall

package main

import (
	"errors"
	"time"
)

// setWall is implemented in the binary of the client processes.
func setWall(time.Duration) error { return errors.New("this binary has no clock that can be set") }
