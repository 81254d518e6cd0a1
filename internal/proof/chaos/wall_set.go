//go:build wall

package main

import "time"

// setWall makes the wall clock of this process wrong. Only the binary of buildClient has time.SetWallError.
func setWall(d time.Duration) error {
	time.SetWallError(int64(d / time.Second))
	return nil
}
