// Package mongoengine keeps the documents of package engine in MongoDB: each operation is one
// findAndModify with a pipeline that decides everything, or its short form if no other is
// there. docs/adr/0003-variables-are-stages.md says why a pipeline is a row of stages, and what its
// text costs.
package mongoengine
