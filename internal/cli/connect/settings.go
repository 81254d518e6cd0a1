package connect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"go.temporal.io/sdk/contrib/envconfig"
)

// Names of the settings that say which settings to read.
const (
	configFileVariable = "TEMPORAL_CONFIG_FILE"
	profileVariable    = "TEMPORAL_PROFILE"
	metadataVariable   = "TEMPORAL_GRPC_META_"
)

// setting is one of Temporal's client configuration: a variable of the environment, or a key of a profile in the
// configuration file.
type setting struct{ variable, key string }

var (
	addressSetting  = setting{"TEMPORAL_ADDRESS", "address"}
	apiKeySetting   = setting{"TEMPORAL_API_KEY", "api_key"}
	tlsSetting      = setting{"TEMPORAL_TLS", "tls.disabled"}
	unverified      = setting{"TEMPORAL_TLS_DISABLE_HOST_VERIFICATION", "tls.disable_host_verification"}
	certPathSetting = setting{"TEMPORAL_TLS_CLIENT_CERT_PATH", "tls.client_cert_path"}
	certDataSetting = setting{"TEMPORAL_TLS_CLIENT_CERT_DATA", "tls.client_cert_data"}
	keyPathSetting  = setting{"TEMPORAL_TLS_CLIENT_KEY_PATH", "tls.client_key_path"}
	keyDataSetting  = setting{"TEMPORAL_TLS_CLIENT_KEY_DATA", "tls.client_key_data"}
	authorityPath   = setting{"TEMPORAL_TLS_SERVER_CA_CERT_PATH", "tls.server_ca_cert_path"}
	authorityData   = setting{"TEMPORAL_TLS_SERVER_CA_CERT_DATA", "tls.server_ca_cert_data"}
)

// SettingError is a setting with which no connection can be tried.
type SettingError struct {
	// Setting is the variable, or the key of a profile and its file.
	Setting string
	// Value is what it says; empty if that may be secret.
	Value string
	// Err is what is wrong with it, if it was tried.
	Err error
	// Want is what it should be.
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

// Unwrap returns what is wrong.
func (e *SettingError) Unwrap() error { return e.Err }

// profile is what the configuration file and the environment say.
type profile struct {
	envconfig.ClientConfigProfile
	name, file string
}

// from names where a setting's value was said.
func (p *profile) from(s setting) string {
	if os.Getenv(s.variable) != "" {
		return s.variable
	}
	return fmt.Sprintf("%s of profile %q in %s", s.key, p.name, p.file)
}

// environment is that of the process, in which an empty variable is one that is not set.
type environment struct{}

func (environment) Environ() []string { return os.Environ() }

func (environment) LookupEnv(name string) (string, bool) {
	value := os.Getenv(name)
	return value, value != ""
}

// readProfile reads the configuration file, if there is one, and the environment, which wins.
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
	file, err := p.readFile()
	if err != nil {
		return nil, err
	}
	said, ok := file.Profiles[p.name]
	switch {
	case ok:
		p.ClientConfigProfile = *said
	case os.Getenv(profileVariable) != "":
		return nil, &SettingError{Setting: profileVariable, Value: p.name, Want: "want the name of a profile in " + p.file}
	}
	if err := p.ApplyEnvVars(environment{}); err != nil {
		return nil, fmt.Errorf("TEMPORAL_*: %w", err)
	}
	return p, p.check()
}

// isTruth reports whether a variable says true or false. Others are passed over by the SDK, and TLS would stay off unnoticed.
func isTruth(value string) bool {
	return slices.Contains([]string{"1", "0", "true", "false"}, strings.ToLower(value))
}

// readFile reads the configuration file. One that was not named need not be there.
func (p *profile) readFile() (conf envconfig.ClientConfig, err error) {
	wrong := SettingError{Setting: "Temporal's configuration file", Value: p.file, Want: "mend it, or name another in " + configFileVariable}
	named := os.Getenv(configFileVariable) != ""
	if named {
		wrong.Setting, wrong.Want = configFileVariable, "want a file of Temporal's client configuration, in TOML"
	}
	data, err := os.ReadFile(p.file)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return conf, nil
	}
	if err == nil {
		err = conf.FromTOML(data, envconfig.ClientConfigFromTOMLOptions{})
	}
	if err == nil {
		return conf, nil
	}
	wrong.Err = reason(err)
	var broken toml.ParseError
	if errors.As(err, &broken) {
		// Its text repeats what stands there, which may be a key.
		wrong.Err = fmt.Errorf("line %d cannot be read", broken.Position.Line)
	}
	return conf, &wrong
}

// reason is an error of reading a file without the file's name, which stands before it.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// check refuses what cannot be sent.
func (p *profile) check() error {
	if !sendable(p.APIKey) {
		return &SettingError{Setting: p.from(apiKeySetting), Want: "it holds a character that cannot be sent; often a line break stands at its end"}
	}
	for key, value := range p.GRPCMeta {
		if !sendable(value) && !strings.HasSuffix(key, "-bin") {
			s := setting{metadataVariable + strings.ToUpper(strings.ReplaceAll(key, "-", "_")), "grpc_meta." + key}
			return &SettingError{Setting: p.from(s), Want: "it holds a character that cannot be sent"}
		}
	}
	return nil
}

// sendable reports whether a text may be the value of a gRPC header.
func sendable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}
