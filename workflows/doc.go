// Package workflows is what workflow code calls: guards on steps, and sagas.
package workflows
