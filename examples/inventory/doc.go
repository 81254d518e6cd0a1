// Package inventory fulfils orders in a warehouse with few packing bays: a semaphore admits as many orders as there are bays,
// and an exclusive lock keeps the count of the stock right.
package inventory
