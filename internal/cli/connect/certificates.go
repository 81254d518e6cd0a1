package connect

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// options are those of a client. What is wrong with its certificates is told by the setting that names them.
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
		conf.GetClientCertificate = newest(p.TLS.ClientCertPath, p.TLS.ClientKeyPath, conf.Certificates[0])
	}
	return o, nil
}

// newest presents the certificate that stands in the files when a connection is made, so that one that was renewed is
// taken up without a restart; while they cannot be read, being written for one, the last that could. It is presented
// whomever the server says that it trusts: its answer then tells more than it would to no certificate.
func newest(certPath, keyPath string, first tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := tls.LoadX509KeyPair(certPath, keyPath); err == nil {
			last.Store(&now)
		}
		return last.Load(), nil
	}
}

// pemText is a certificate or key as it was given: in a file, or as it is.
type pemText struct {
	path, data setting
	file       string
	content    []byte
	want       string
}

// from names the setting that gave it.
func (c *pemText) from(p *profile) string {
	if c.file != "" {
		return p.from(c.path)
	}
	return p.from(c.data)
}

// read returns what was given, or nothing.
func (c *pemText) read(p *profile) ([]byte, error) {
	switch {
	case c.file == "":
		return c.content, nil
	case len(c.content) > 0:
		return nil, &SettingError{Setting: p.from(c.path), Value: c.file, Want: "unset it, or else " + p.from(c.data) + ", which says the same"}
	}
	content, err := os.ReadFile(c.file)
	if err != nil {
		return nil, &SettingError{Setting: p.from(c.path), Value: c.file, Err: reason(err), Want: c.want}
	}
	return content, nil
}

// checkCertificates refuses those that cannot be used.
func (p *profile) checkCertificates() error {
	t := p.TLS
	const wantPair = "want the path of the client's certificate in PEM, and its key's beside it"
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

// checkPair refuses a certificate and a key that are not of each other.
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
