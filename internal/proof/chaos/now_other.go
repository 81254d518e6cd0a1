//go:build !unix

package main

func now() int64 { panic("chaos needs the monotonic clock of a Unix") }
