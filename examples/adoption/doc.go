// Package adoption adds locks to an existing worker, with workflows in flight, in three deployments.
package adoption
