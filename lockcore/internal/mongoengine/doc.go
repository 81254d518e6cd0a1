// Package mongoengine keeps the documents of package engine in MongoDB: each operation is one findAndModify with
// a pipeline that decides everything.
//
// A pipeline is a row of $set stages that work on a temporary field, t, and two last ones that make the document of it and
// take t away. Stages and not nested $let, since DocumentDB evaluates a $let variable anew at each mention.
//
// Whatever a caller passed goes through $literal, and no name of a field comes from a caller.
package mongoengine
