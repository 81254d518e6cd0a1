package wire

import (
	"errors"
	"regexp"
	"strings"

	"github.com/temporal-lockstep/lockstep/lockcore"
)

// namespaceIDs are those of namespaces, before workflow IDs.
var namespaceIDs = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/`)

// text is an error's text for people, who know workflows by their IDs: the ID of the party's own
// namespace is left out. The details have the full lock IDs.
func text(err error, lockID string) string {
	s := err.Error()
	var lost *lockcore.LostError
	if errors.As(err, &lost) && lost.By != "" && lost.Reason == "" {
		s += ": its time was over before it was renewed"
	}
	if own := namespaceIDs.FindString(lockID); own != "" && strings.HasPrefix(lockID, own) {
		s = strings.ReplaceAll(s, own, "")
	}
	return Cut(s, maxMessage)
}

// Asked says in a *lockcore.InvalidError what the user wrote, instead of the request that was made
// of it. place ends with a dot, or is empty. Any other error stays as it is.
func Asked(err error, place string) error {
	const request = "Request."
	var invalid *lockcore.InvalidError
	if !errors.As(err, &invalid) || !strings.Contains(invalid.Field, request) {
		return err
	}
	return &lockcore.InvalidError{
		Field: strings.ReplaceAll(invalid.Field, request, place), Value: invalid.Value, Bound: strings.ReplaceAll(invalid.Bound, request, place),
	}
}
