// Package inventory fulfils orders in a warehouse that has few packing bays: a semaphore lets as many orders in as there
// are bays, and an exclusive lock keeps the count of the stock right.
package inventory
