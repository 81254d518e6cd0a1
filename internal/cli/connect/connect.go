// Package connect opens the connections of lockstep's processes, and checks at once that the server answers. Its errors are
// for people: they name the address and the wrong setting, and never contain a password, a key or a certificate.
//
// FindFrontend reads the settings of the connection to Temporal: from flags, from the TEMPORAL_* variables and from the
// configuration file of Temporal's command line and SDKs. Everything about the database is in its URI.
package connect

import "time"

// timeout is the time that a server has for its first answer.
const timeout = 5 * time.Second
