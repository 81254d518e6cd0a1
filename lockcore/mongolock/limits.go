package mongolock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// maxTTL is lockcore's, in seconds.
const maxTTL = 10 * 365 * 24 * 60 * 60

func seconds(n uint) time.Duration { return time.Duration(min(n, maxTTL)) * time.Second } // fits: ten years

// checkLock refuses what is never accepted, before the database is asked.
func checkLock(resource, lockID string, ld *LockDetails) error {
	for _, text := range []struct {
		field, value string
		least, most  int
	}{
		{"resourceName", resource, 1, 512}, {"lockId", lockID, 1, maxLockID},
		{"LockDetails.Owner", ld.Owner, 0, 512}, {"LockDetails.Host", ld.Host, 0, 255}, {"LockDetails.Comment", ld.Comment, 0, 1024},
	} {
		if err := checkText(text.field, text.value, text.least, text.most); err != nil {
			return err
		}
	}
	return checkTTL("LockDetails.TTL", ld.TTL, 0)
}

func checkLockID(lockID string) error { return checkText("lockId", lockID, 1, maxLockID) }

func checkText(field, value string, least, most int) error {
	if len(value) >= least && len(value) <= most && utf8.ValidString(value) && !strings.ContainsRune(value, 0) {
		return nil
	}
	shown := strconv.Quote(value[:min(len(value), 64)])
	if len(value) > 64 {
		shown += fmt.Sprintf("… (%d bytes)", len(value))
	}
	return &lockcore.InvalidError{Field: field, Value: shown, Bound: fmt.Sprintf("%d to %d bytes of valid UTF-8 without NUL", least, most)}
}

func checkTTL(field string, ttl, least uint) error {
	if ttl >= least && ttl <= maxTTL {
		return nil
	}
	return &lockcore.InvalidError{Field: field, Value: strconv.FormatUint(uint64(ttl), 10), Bound: fmt.Sprintf("%d to %d seconds", least, maxTTL)}
}
