package connect

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
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
	addressSetting  = setting{"TEMPORAL_ADDRESS", "address"}
	nameSetting     = setting{"TEMPORAL_NAMESPACE", "namespace"}
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
	file, err := p.readFile()
	if err != nil {
		return nil, err
	}
	found, ok := file.Profiles[p.name]
	switch {
	case ok:
		p.ClientConfigProfile = *found
	case os.Getenv(profileVariable) != "":
		return nil, &SettingError{Setting: profileVariable, Value: p.name, Want: "want the name of a profile in " + p.file}
	}
	if err := p.ApplyEnvVars(environment{}); err != nil {
		return nil, fmt.Errorf("TEMPORAL_*: %w", err)
	}
	return p, p.check()
}

// isTruth reports whether a value is a boolean. The SDK ignores other values, so that TLS would be off unnoticed.
func isTruth(value string) bool {
	return slices.Contains([]string{"1", "0", "true", "false"}, strings.ToLower(value))
}

// readFile reads the configuration file. The default file may be missing.
func (p *profile) readFile() (conf envconfig.ClientConfig, err error) {
	wrong := SettingError{Setting: "Temporal's configuration file", Value: p.file, Want: "correct it, or name another in " + configFileVariable}
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
		// The text of the error repeats the line, which may contain a key.
		wrong.Err = fmt.Errorf("line %d cannot be read", broken.Position.Line)
	}
	return conf, &wrong
}

// reason removes the name of the file from an error, since SettingError has it.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
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

// options returns the options of a client. Errors about certificates name the setting.
func (p *profile) options() (client.Options, error) {
	if p.TLS != nil && !p.TLS.Disabled {
		if err := p.checkCertificates(); err != nil {
			return client.Options{}, err
		}
	}
	o, err := p.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return o, fmt.Errorf("%s and %s: %w", tlsSetting.variable, certPathSetting.variable, err)
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

// pemText is a certificate or key, given as a file or as text.
type pemText struct {
	path, data setting
	file       string
	content    []byte
	want       string // for errors about the file
}

// from names its setting.
func (c *pemText) from(p *profile) string {
	if c.file != "" {
		return p.from(c.path)
	}
	return p.from(c.data)
}

// read returns the text, which is empty if there is none.
func (c *pemText) read(p *profile) ([]byte, error) {
	switch {
	case c.file == "":
		return c.content, nil
	case len(c.content) > 0:
		return nil, &SettingError{Setting: p.from(c.path), Value: c.file, Want: "unset it, or else " + p.from(c.data) + ", which sets the same"}
	}
	content, err := os.ReadFile(c.file)
	if err != nil {
		return nil, &SettingError{Setting: p.from(c.path), Value: c.file, Err: reason(err), Want: c.want}
	}
	return content, nil
}

// checkCertificates refuses certificates that cannot be used.
func (p *profile) checkCertificates() error {
	t := p.TLS
	const wantPair = "want the path of the client's certificate in PEM, and the path of its key"
	cert := &pemText{certPathSetting, certDataSetting, t.ClientCertPath, t.ClientCertData, wantPair}
	key := &pemText{keyPathSetting, keyDataSetting, t.ClientKeyPath, t.ClientKeyData, wantPair}
	ca := &pemText{authorityPath, authorityData, t.ServerCACertPath, t.ServerCACertData, "want the path of certificates in PEM"}
	certText, err := cert.read(p)
	if err != nil {
		return err
	}
	keyText, err := key.read(p)
	if err != nil {
		return err
	}
	if err := p.checkPair(cert, key, certText, keyText); err != nil {
		return err
	}
	switch caText, err := ca.read(p); {
	case err != nil:
		return err
	case (ca.file != "" || len(caText) > 0) && !x509.NewCertPool().AppendCertsFromPEM(caText):
		return &SettingError{Setting: ca.from(p), Value: ca.file, Want: "it holds no certificate in PEM"}
	}
	return nil
}

// checkPair refuses a certificate and a key that do not match.
func (p *profile) checkPair(cert, key *pemText, certText, keyText []byte) error {
	hasCert, hasKey := cert.file != "" || len(certText) > 0, key.file != "" || len(keyText) > 0
	switch {
	case hasCert && !hasKey:
		return &SettingError{Setting: cert.from(p), Value: cert.file, Want: "it needs its key: set " + keyPathSetting.variable}
	case hasKey && !hasCert:
		return &SettingError{Setting: key.from(p), Value: key.file, Want: "it needs its certificate: set " + certPathSetting.variable}
	case !hasCert:
		return nil
	case (cert.file == "") != (key.file == ""):
		return &SettingError{Setting: cert.from(p), Value: cert.file, Want: "want a path both here and for the key, or neither; have " + key.from(p)}
	}
	if _, err := tls.X509KeyPair(certText, keyText); err != nil {
		return &SettingError{Setting: cert.from(p), Value: cert.file, Err: err, Want: "want a certificate and its key, which is " + key.from(p)}
	}
	return nil
}
