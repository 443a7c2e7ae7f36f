//go:build real

package real

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
)

type cluster struct {
	client.Client

	plane *controlplane.ControlPlane
}

func startCluster(t *testing.T, crds string) cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	plane, err := controlplane.Start(t.Context(), controlplane.Options{CRDDir: crds, Progress: os.Stderr})
	must(t, err)
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := runtime.NewScheme()
	must(t, corev1.AddToScheme(s))
	c, err := client.New(plane.Config(), client.Options{Scheme: s})
	must(t, err)
	return cluster{Client: c, plane: plane}
}

// Requests are the numbers of requests that the API server has served, by verb and
// subresource.
type requests map[string]int

var requestLine = regexp.MustCompile(`(?m)^apiserver_request_total\{(.*)\} (\d+)$`)

// requests returns those for objects of an API group. Lists are the tests' own, and a
// watch lasts.
func (c cluster) requests(t *testing.T, group string) requests {
	t.Helper()
	k, err := kubernetes.NewForConfig(c.plane.Config())
	must(t, err)
	metrics, err := k.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	n := requests{}
	for _, m := range requestLine.FindAllStringSubmatch(string(metrics), -1) {
		verb := label(m[1], "verb")
		if label(m[1], "group") != group || verb == "LIST" || verb == "WATCH" {
			continue
		}
		count, err := strconv.Atoi(m[2])
		must(t, err)
		n[strings.TrimSpace(strings.ToLower(verb)+" "+label(m[1], "subresource"))] += count
	}
	return n
}

func label(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func (n requests) since(earlier requests) string {
	var said []string
	for verb, now := range n {
		if d := now - earlier[verb]; d > 0 {
			said = append(said, fmt.Sprintf("%s %d", verb, d))
		}
	}
	if len(said) == 0 {
		return "none"
	}
	slices.Sort(said)
	return strings.Join(said, ", ")
}

func condition(o unstructured.Unstructured, kind string) (status, reason, message string) {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			status, _ = m["status"].(string)
			reason, _ = m["reason"].(string)
			message, _ = m["message"].(string)
		}
	}
	return status, reason, message
}

// summary says how many objects are ready, and why the first of the others is not.
func summary(objects []unstructured.Unstructured) string {
	if len(objects) == 0 {
		return "no managed resources"
	}
	ready, others := 0, ""
	for _, o := range objects {
		said := ""
		for _, kind := range []string{"Synced", "Ready"} {
			if status, reason, message := condition(o, kind); status != "True" && said == "" {
				said = strings.TrimSuffix(fmt.Sprintf("%s=%s (%s): %s", kind, status, reason, message), ": ")
			}
		}
		switch {
		case said == "":
			ready++
		case others == "":
			others = said
		}
	}
	if ready == len(objects) {
		return fmt.Sprintf("%d ready", ready)
	}
	return fmt.Sprintf("%d ready, %d %s", ready, len(objects)-ready, others)
}
