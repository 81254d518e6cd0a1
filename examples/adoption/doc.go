// Package adoption adds locks to a worker that exists, with workflows in flight, in three deployments.
package adoption
