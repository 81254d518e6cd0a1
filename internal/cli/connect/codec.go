package connect

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"
)

var (
	codecEndpointSetting = setting{"TEMPORAL_CODEC_ENDPOINT", "codec.endpoint"}
	codecAuthSetting     = setting{"TEMPORAL_CODEC_AUTH", "codec.auth"}
)

// codecTimeout bounds a request to the codec server.
const codecTimeout = 10 * time.Second

// UseCodec makes the client of f.Options encode and decode payloads by a codec server. Its endpoint is the flag's or else the one in the
// settings; "{namespace}" in it means the namespace. UseCodec returns the endpoint without its password, or the empty string if
// there is none. The error is a SettingError. UseCodec sends nothing.
//
// Failures stay plain, because a Go worker whose client has a codec and no failure converter of its own reads no others.
func (f *Frontend) UseCodec(flag string) (endpoint string, err error) {
	from, codec := "--codec-endpoint", cmp.Or(f.profile.Codec, &envconfig.ClientConfigCodec{})
	if flag == "" {
		from = f.profile.from(codecEndpointSetting)
	}
	raw := strings.ReplaceAll(cmp.Or(flag, codec.Endpoint), "{namespace}", f.Options.Namespace)
	if raw == "" {
		return "", nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", &SettingError{Setting: from, Value: withoutPassword(raw), Want: "want the URL of a codec server, as http://127.0.0.1:8081"}
	}
	if !sendable(codec.Auth) {
		return "", &SettingError{Setting: f.profile.from(codecAuthSetting), Want: "it holds a character that cannot be sent; often a line break at its end"}
	}
	namespace := f.Options.Namespace
	f.Options.DataConverter = converter.NewRemoteDataConverter(converter.GetDefaultDataConverter(), converter.RemoteDataConverterOptions{
		Endpoint: raw, Client: http.Client{Timeout: codecTimeout},
		ModifyRequest: func(r *http.Request) error { // as the temporal command line does
			r.Header.Set("X-Namespace", namespace)
			if codec.Auth != "" {
				r.Header.Set("Authorization", codec.Auth)
			}
			return nil
		},
	})
	return u.Redacted(), nil
}
