// Renders a chart of Helm with its own values and with others, and reads what comes out as Kubernetes does:
// every field has to be one that it knows. `go run . CHART`
package main

import (
	"fmt"
	"os"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const version = "v1.31.0"

var kinds = map[string]func() any{
	"v1/ConfigMap":                  func() any { return &corev1.ConfigMap{} },
	"v1/Service":                    func() any { return &corev1.Service{} },
	"apps/v1/StatefulSet":           func() any { return &appsv1.StatefulSet{} },
	"apps/v1/Deployment":            func() any { return &appsv1.Deployment{} },
	"batch/v1/Job":                  func() any { return &batchv1.Job{} },
	"policy/v1/PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
}

// Values beside the chart's own: everything that is left out there.
var others = `
image: {repository: example/magnetar, tag: "7", pullPolicy: Always}
imagePullSecrets: [{name: secret}]
configurationMetadataStoreUrl: zk:elsewhere:2181
broker:
  settings: {authenticationEnabled: "true", tokenSecretKey: "file:///etc/magnetar/tokens/key"}
  secrets: [{name: tokens, mountPath: /etc/magnetar/tokens}, {name: tls, mountPath: /etc/magnetar/tls}]
  probe: {port: 8443, scheme: HTTPS}
proxy:
  settings: {tlsEnabledWithBroker: "true"}
  secrets: [{name: tls, mountPath: /etc/magnetar/tls}]
  service: {type: LoadBalancer, annotations: {a: b}}
nodeSelector: {disk: fast}
tolerations: [{key: a, operator: Exists}]
`

// One broker that keeps its data itself.
var standalone = `
standalone:
  enabled: true
  advertisedAddress: broker.example.com
  storage: 5Gi
  storageClassName: fast
  settings: {authenticationEnabled: "true", tokenSecretKey: "file:///etc/magnetar/tokens/key"}
  secrets: [{name: tokens, mountPath: /etc/magnetar/tokens}]
  service: {type: LoadBalancer, annotations: {a: b}}
`

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	folder := os.Args[1]
	for _, text := range []string{"{}", others, "{proxy: {replicas: 0}, initialize: {enabled: false}}", standalone, "{standalone: {enabled: true}}"} {
		values := map[string]any{}
		check(yaml.Unmarshal([]byte(text), &values))
		loaded, err := loader.Load(folder)
		check(err)
		capabilities := chartutil.DefaultCapabilities.Copy()
		parsed, err := chartutil.ParseKubeVersion(version)
		check(err)
		capabilities.KubeVersion = *parsed
		for _, message := range lint.AllWithKubeVersion(folder, values, "default", parsed).Messages {
			if message.Severity > support.InfoSev {
				check(fmt.Errorf("%s", message))
			}
		}
		release := chartutil.ReleaseOptions{Name: "test", Namespace: "default", Revision: 1, IsInstall: true}
		rendering, err := chartutil.ToRenderValues(loaded, values, release, capabilities)
		check(err)
		rendered, err := engine.Render(loaded, rendering)
		check(err)
		count := 0
		for name, content := range rendered {
			for _, document := range strings.Split(content, "\n---\n") {
				if strings.TrimSpace(document) != "" && !strings.HasSuffix(name, ".tpl") {
					decode(name, document)
					count++
				}
			}
		}
		fmt.Println(count)
	}
	// What the schema of values does not know is refused.
	loaded, err := loader.Load(folder)
	check(err)
	release := chartutil.ReleaseOptions{Name: "test", Namespace: "default"}
	wrong := map[string]any{"brokers": 3}
	if _, err := chartutil.ToRenderValues(loaded, wrong, release, chartutil.DefaultCapabilities); err == nil {
		check(fmt.Errorf("a value that nobody knows is taken"))
	}
}

func decode(name string, document string) {
	head := struct{ APIVersion, Kind string }{}
	check(yaml.Unmarshal([]byte(document), &head))
	make, known := kinds[head.APIVersion+"/"+head.Kind]
	if !known {
		check(fmt.Errorf("%s: %s/%s is not expected", name, head.APIVersion, head.Kind))
	}
	if err := yaml.UnmarshalStrict([]byte(document), make()); err != nil {
		check(fmt.Errorf("%s: %w", name, err))
	}
}
