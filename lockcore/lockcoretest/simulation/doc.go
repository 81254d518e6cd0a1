// Package simulation plays many Lockers in virtual time.
package simulation
