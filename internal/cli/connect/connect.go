// Package connect opens the connections of the command line's processes, and makes sure at once that the server answers,
// with errors for people: they name the address and the setting that is wrong, and never a password, a key or what
// stands in a certificate.
//
// Where Temporal is, and how it is spoken to, is said by flags, by the TEMPORAL_* variables and by the configuration file
// that the temporal command line and Temporal's SDKs read too: FindFrontend. Where the database is, is said by its URI
// alone.
package connect

import "time"

// timeout is how long a server may take to answer for the first time.
const timeout = 5 * time.Second
