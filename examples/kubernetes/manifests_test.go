// Package kubernetes checks the manifests in this folder. It is a module of its own, so that Kubernetes' types are not in the library's
// go.mod.
package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const root = "../.."

// manifests contains the objects of all files.
type manifests struct {
	deployments []*appsv1.Deployment
	services    []*corev1.Service
	configs     map[string]*corev1.ConfigMap
	policies    []*networkingv1.NetworkPolicy
}

// decode decodes documents strictly: unknown and repeated fields are errors.
func decode(text []byte) (all []runtime.Object, err error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for {
		document := make([]byte, len(text))
		n, err := documents.Read(document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := decoder.Decode(document[:n], nil, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
}

func read(t *testing.T) manifests {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	m := manifests{configs: map[string]*corev1.ConfigMap{}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		objects, err := decode(text)
		require.NoError(t, err, file)
		for _, object := range objects {
			switch o := object.(type) {
			case *appsv1.Deployment:
				m.deployments = append(m.deployments, o)
			case *corev1.Service:
				m.services = append(m.services, o)
			case *corev1.ConfigMap:
				m.configs[o.Name] = o
			case *networkingv1.NetworkPolicy:
				m.policies = append(m.policies, o)
			default:
				require.Failf(t, "not expected", "%s: %T", file, o)
			}
		}
	}
	require.Len(t, m.deployments, 3)
	require.Len(t, m.services, 1)
	require.Len(t, m.policies, 2)
	return m
}

// selects reports whether a selector's labels select pods with the other labels.
func selects(selector, labels map[string]string) bool {
	return len(selector) > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(selector)), func(key string) bool { return labels[key] != selector[key] })
}

func TestDecode_UnknownField_IsRefused(t *testing.T) {
	t.Parallel()
	_, err := decode([]byte("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndate: {}\n"))
	require.ErrorContains(t, err, "date")
}

// The command must accept the arguments, and its help must name each variable.
func TestContainers_ArgumentsAndVariables_AreThoseOfTheCommand(t *testing.T) {
	t.Parallel()
	m := read(t)
	program := filepath.Join(t.TempDir(), "lockstep")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/lockstep")
	build.Dir = root
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	for _, d := range m.deployments {
		c := d.Spec.Template.Spec.Containers[0]
		// Flags are parsed before --help is obeyed: an unknown one, or a bad value, is refused.
		help, err := exec.CommandContext(t.Context(), program, append(slices.Clone(c.Args), "--help")...).CombinedOutput()
		require.NoError(t, err, "%v: %s", c.Args, help)
		names := slices.Collect(maps.Keys(m.configs[c.EnvFrom[0].ConfigMapRef.Name].Data))
		for _, variable := range c.Env {
			names = append(names, variable.Name)
		}
		require.Contains(t, names, "LOCKSTEP_MONGODB_URI")
		for _, name := range names {
			require.Contains(t, string(help), name, d.Name)
		}
	}
}

func TestDeployments_SelectTheirPods_AndAreConfined(t *testing.T) {
	t.Parallel()
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	latest := regexp.MustCompile(`(?m)^## \[([0-9][^]]*)\] - [0-9]`).FindSubmatch(changelog)
	if latest == nil { // before the first release
		latest = regexp.MustCompile(`(?m)^## \[([0-9][^]]*)\]`).FindSubmatch(changelog)
	}
	require.NotNil(t, latest, "CHANGELOG.md has no version")
	m := read(t)
	for i, d := range m.deployments {
		require.Equal(t, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels, d.Name)
		for _, other := range m.deployments[:i] {
			require.False(t, selects(other.Spec.Selector.MatchLabels, d.Spec.Template.Labels), "%s and %s", d.Name, other.Name)
		}
		pod := d.Spec.Template.Spec
		require.Len(t, pod.Containers, 1)
		c := pod.Containers[0]
		require.Equal(t, "ghcr.io/temporal-lockstep/lockstep:v"+string(latest[1]), c.Image, "the image must be the latest release in CHANGELOG.md")
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.False(t, *pod.AutomountServiceAccountToken)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		require.LessOrEqual(t, c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value())
		require.False(t, c.Resources.Requests.Cpu().IsZero())
	}
}

// README.md creates the Secret with the keys that the manifests read.
func TestSecret_EachKey_IsCreated(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, d := range read(t).deployments {
		for _, variable := range d.Spec.Template.Spec.Containers[0].Env {
			ref := variable.ValueFrom.SecretKeyRef
			_, command, found := strings.Cut(string(readme), "create secret generic "+ref.Name+" ")
			require.True(t, found, ref.Name)
			command, _, _ = strings.Cut(command, "kubectl")
			require.Contains(t, command, "--from-file="+ref.Key+"=")
		}
	}
}

func TestService_ReachesThePortOfThePage(t *testing.T) {
	t.Parallel()
	m := read(t)
	service := m.services[0]
	for _, d := range m.deployments {
		c := d.Spec.Template.Spec.Containers[0]
		if !selects(service.Spec.Selector, d.Spec.Template.Labels) {
			require.Empty(t, c.Ports, d.Name)
			continue
		}
		require.Equal(t, "lockstep-ui", d.Name)
		require.Len(t, c.Ports, 1)
		require.Equal(t, c.Ports[0].Name, service.Spec.Ports[0].TargetPort.StrVal)
		require.Equal(t, c.Ports[0].Name, c.ReadinessProbe.TCPSocket.Port.StrVal)
		listen := c.Args[slices.Index(c.Args, "--listen")+1]
		require.Equal(t, "0.0.0.0:8390", listen)
		require.EqualValues(t, 8390, c.Ports[0].ContainerPort)
	}
}

func TestPolicies_OnlyThePageCanBeReached(t *testing.T) {
	t.Parallel()
	m := read(t)
	for _, d := range m.deployments {
		var confined, open bool
		for _, p := range m.policies {
			if selects(p.Spec.PodSelector.MatchLabels, d.Spec.Template.Labels) {
				confined = confined || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
				open = open || len(p.Spec.Ingress) > 0
			}
		}
		require.True(t, confined, d.Name)
		require.Equal(t, strings.HasSuffix(d.Name, "-ui"), open, d.Name)
	}
}
