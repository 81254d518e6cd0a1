package connect

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/BurntSushi/toml"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// Variables that select the file and the profile, and the prefix of those with headers.
const (
	configFileVariable = "TEMPORAL_CONFIG_FILE"
	profileVariable    = "TEMPORAL_PROFILE"
	metadataVariable   = "TEMPORAL_GRPC_META_"
)

// setting is a setting of Temporal's client configuration: an environment variable, and a key in the configuration file.
type setting struct{ variable, key string }

var (
	addressSetting = setting{"TEMPORAL_ADDRESS", "address"}
	apiKeySetting  = setting{"TEMPORAL_API_KEY", "api_key"}
	tlsSetting     = setting{"TEMPORAL_TLS", "tls.disabled"}
	unverified     = setting{"TEMPORAL_TLS_DISABLE_HOST_VERIFICATION", "tls.disable_host_verification"}
)

// SettingError reports a setting that cannot be used.
type SettingError struct {
	// Setting is the variable, or the key with its profile and file.
	Setting string
	// Value is empty if it may be secret.
	Value string
	// Err is the error of the attempt to use it, if there was one.
	Err error
	// Want describes a correct value.
	Want string
}

func (e *SettingError) Error() string {
	text := e.Setting
	if e.Value != "" {
		text += fmt.Sprintf(" is %q", e.Value)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + ": " + e.Want
}

// Unwrap returns Err.
func (e *SettingError) Unwrap() error { return e.Err }

// profile has the settings from the configuration file and the environment.
type profile struct {
	envconfig.ClientConfigProfile
	name, file string
}

// from names the variable, or the key in the file, that has the value of a setting.
func (p *profile) from(s setting) string {
	if os.Getenv(s.variable) != "" {
		return s.variable
	}
	return fmt.Sprintf("%s of profile %q in %s", s.key, p.name, p.file)
}

// environment is the environment of the process. Empty variables count as not set.
type environment struct{}

func (environment) Environ() []string { return os.Environ() }

func (environment) LookupEnv(name string) (string, bool) {
	value := os.Getenv(name)
	return value, value != ""
}

// readProfile reads the configuration file, if there is one, and the environment, which takes precedence.
func readProfile() (*profile, error) {
	for _, s := range []setting{tlsSetting, unverified} {
		if value := os.Getenv(s.variable); value != "" && !isTruth(value) {
			return nil, &SettingError{Setting: s.variable, Value: value, Want: "want true or false"}
		}
	}
	p := &profile{
		name: cmp.Or(os.Getenv(profileVariable), envconfig.DefaultConfigFileProfile),
		file: cmp.Or(os.Getenv(configFileVariable), envconfig.DefaultConfigFilePath()),
	}
	var err error
	if os.Getenv(configFileVariable) != "" { // only the default file may be missing
		_, err = os.Stat(p.file) //nolint:gosec // the file that the user names
	}
	if err == nil {
		p.ClientConfigProfile, err = envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{EnvLookup: environment{}})
	}
	if err == nil {
		return p, p.check()
	}
	var broken toml.ParseError
	if errors.As(err, &broken) { // its text repeats the line, which may contain a key
		err = fmt.Errorf("line %d cannot be read", broken.Position.Line)
	}
	return nil, &SettingError{
		Setting: "Temporal's client configuration", Value: p.file, Err: err,
		Want: "correct it, or name another file in " + configFileVariable + ", or another of its profiles in " + profileVariable,
	}
}

// isTruth reports whether a value is a boolean. The SDK ignores other values, so that TLS would be off unnoticed.
func isTruth(value string) bool {
	return slices.Contains([]string{"1", "0", "true", "false"}, strings.ToLower(value))
}

// check refuses values that no gRPC header can have.
func (p *profile) check() error {
	if !sendable(p.APIKey) {
		return &SettingError{Setting: p.from(apiKeySetting), Want: "it holds a character that cannot be sent; often a line break at its end"}
	}
	for key, value := range p.GRPCMeta {
		if !sendable(value) && !strings.HasSuffix(key, "-bin") {
			s := setting{metadataVariable + strings.ToUpper(strings.ReplaceAll(key, "-", "_")), "grpc_meta." + key}
			return &SettingError{Setting: p.from(s), Want: "it holds a character that cannot be sent"}
		}
	}
	return nil
}

// sendable reports whether text can be the value of a gRPC header.
func sendable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// options returns the options of a client. It reads the certificates.
func (p *profile) options() (client.Options, error) {
	o, err := p.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		name := fmt.Sprintf("TEMPORAL_TLS_*, or tls of profile %q in %s", p.name, p.file)
		return o, &SettingError{Setting: name, Err: err, Want: "want a client's certificate and its key, and certificates of authorities, all in PEM"}
	}
	if conf := o.ConnectionOptions.TLS; conf != nil && len(conf.Certificates) > 0 {
		conf.GetClientCertificate = latestCertificate(p.TLS.ClientCertPath, p.TLS.ClientKeyPath, conf.Certificates[0])
	}
	return o, nil
}

// latestCertificate returns a function that reads the certificate again for each connection, so that a renewed one needs no
// restart. While the files cannot be read, for example because they are being written, it returns the last one. The client
// presents it even if the server does not list its authority as trusted: the server's refusal is then more precise.
func latestCertificate(certPath, keyPath string, first tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := tls.LoadX509KeyPair(certPath, keyPath); err == nil {
			last.Store(&now)
		}
		return last.Load(), nil
	}
}
