// Package recipes has the code of docs/guides/recipes.md: a workflow, or a function for a client or an operator, for each common task. Its test
// runs each of them on the servers.
package recipes
