// Command controllers runs two of kube-controller-manager's controllers: the garbage collector
// and the namespace controller. All of its controllers need 374 packages that kube-apiserver
// does not need, and take a quarter of the whole build. These two need 63.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

// Defaults of kube-controller-manager.
const (
	resync               = 12 * time.Hour
	mapperInterval       = 30 * time.Second
	collectorInterval    = 30 * time.Second
	collectorWorkers     = 20
	namespaceInterval    = 5 * time.Minute
	namespaceWorkers     = 10
	namespaceMoreQPS     = 20
	namespaceLargerBurst = 100
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file that says how to connect to the API server")
	qps := flag.Float64("kube-api-qps", 20, "requests a second")
	burst := flag.Int("kube-api-burst", 30, "requests at once")

	// Flags of kube-controller-manager that are set to what this program does.
	flag.String("controllers", "", "ignored: the garbage collector and the namespace controller run")
	flag.Bool("leader-elect", false, "ignored: no leader is elected")
	flag.Bool("use-service-account-credentials", false, "ignored: the user of the kubeconfig is used")
	flag.Int("secure-port", 0, "ignored: no port is served")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *kubeconfig, float32(*qps), *burst)
	stop()
	if err != nil {
		klog.ErrorS(err, "Cannot run the controllers")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string, qps float32, burst int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = qps, burst
	client, meta, err := clients(config, 1, 1)
	if err != nil {
		return err
	}
	client2, meta2, err := clients(config, namespaceMoreQPS, namespaceLargerBurst)
	if err != nil {
		return err
	}

	typed := informers.NewSharedInformerFactory(client, resync)
	untyped := metadatainformer.NewSharedInformerFactory(meta, resync)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	started := make(chan struct{})
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, meta, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(typed, untyped), started)
	if err != nil {
		return err
	}
	namespaces := namespace.NewNamespaceController(ctx, client2, meta2, client2.Discovery().ServerPreferredNamespacedResources,
		typed.Core().V1().Namespaces(), namespaceInterval, corev1.FinalizerKubernetes)

	typed.Start(ctx.Done())
	untyped.Start(ctx.Done())
	close(started)
	var wg sync.WaitGroup
	wg.Go(func() { wait.Until(mapper.Reset, mapperInterval, ctx.Done()) })
	wg.Go(func() { collector.Run(ctx, collectorWorkers, collectorInterval) })
	wg.Go(func() { collector.Sync(ctx, client.Discovery(), collectorInterval) })
	wg.Go(func() { namespaces.Run(ctx, namespaceWorkers) })
	wg.Wait()
	return nil
}

// clients returns clients with multiples of the config's limits.
func clients(config *rest.Config, moreQPS float32, largerBurst int) (kubernetes.Interface, metadata.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS *= moreQPS
	config.Burst *= largerBurst
	client, err1 := kubernetes.NewForConfig(config)
	meta, err2 := metadata.NewForConfig(config)
	return client, meta, errors.Join(err1, err2)
}
