package worker

import (
	"bytes"
	"fmt"

	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"

	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// errNeedsClient is the error of a worker that must hide names, but whose client the plugin could not configure.
var errNeedsClient = &lockcore.InvalidError{
	Field: "worker.Options.DataConverter", Value: "a converter, for a worker whose client does not have the plugin",
	Bound: "none, or a plugin in client.Options.Plugins: the client's converters must hide names too",
}

// hideNames gives a client converters with which histories do not show the names of resources, if dc is not nil. Converters that the client
// has already are kept, if they hide too.
func hideNames(dc converter.DataConverter, o *client.Options) error {
	if dc == nil {
		return nil
	}
	if o.DataConverter == nil {
		o.DataConverter = dc
	}
	if o.FailureConverter == nil {
		o.FailureConverter = failureConverter{temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
			DataConverter: o.DataConverter, EncodeCommonAttributes: true,
		})}
	}
	for field, of := range map[string]converter.DataConverter{
		"worker.Options.DataConverter": dc, "client.Options.DataConverter": o.DataConverter,
	} {
		p, err := of.ToPayload(probe)
		if err != nil {
			return fmt.Errorf("lockstep: check that %s encrypts: %w", field, err)
		}
		if err := checkHides(field, p); err != nil {
			return err
		}
	}
	return checkHides("client.Options.FailureConverter", o.FailureConverter.ErrorToFailure(temporal.NewApplicationError(probe, "probe", probe)))
}

// failureConverter encodes failures completely. The SDK (1.50) decodes a failure in place, and a local activity's failure before it has
// recorded it: without the copy, the history would show the message.
type failureConverter struct{ converter.FailureConverter }

// FailureToError decodes a copy of the failure.
func (c failureConverter) FailureToError(failure *failurepb.Failure) error {
	return c.FailureConverter.FailureToError(proto.CloneOf(failure))
}

// checkReads returns a *lockcore.InvalidError if a client's data converter cannot carry the inputs of Lockstep's activities, which are raw values,
// or read wake-ups, which are plain JSON whatever codec the process that sends them has.
func checkReads(dc converter.DataConverter) error {
	if dc == nil {
		return nil
	}
	plain, err := converter.GetDefaultDataConverter().ToPayload(probe)
	if err != nil {
		return err
	}
	var text string
	if err := dc.FromPayload(plain, &text); err != nil || text != probe {
		return unfit("cannot read plain JSON", "a codec that leaves payloads as they are that it has not encoded", err)
	}
	if _, err := dc.ToPayload(converter.NewRawValue(plain)); err != nil {
		return unfit("does not support converter.RawValue", "one based on converter.NewCompositeDataConverter", err)
	}
	return nil
}

func unfit(value, bound string, err error) error {
	if err != nil {
		value += ": " + wire.Cut(err.Error(), 128)
	}
	return &lockcore.InvalidError{Field: "client.Options.DataConverter", Value: "a converter that " + value, Bound: bound}
}

// probe is a text that converters must not show.
const probe = "lockstep checks that names of resources are hidden"

// checkHides returns a *lockcore.InvalidError if the probe can be read in what the converter has made of it.
func checkHides(field string, encoded proto.Message) error {
	text, err := proto.Marshal(encoded)
	if err != nil {
		return fmt.Errorf("lockstep: check that %s encrypts: %w", field, err)
	}
	if bytes.Contains(text, []byte(probe)) {
		return &lockcore.InvalidError{
			Field: field, Value: "a converter that shows what it encodes",
			Bound: "a converter with a codec that encrypts; for failures, one that also encodes messages (EncodeCommonAttributes)",
		}
	}
	return nil
}
