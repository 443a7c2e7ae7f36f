// Command controllers runs two of kube-controller-manager's controllers: the garbage collector
// and the namespace controller. Its argument is the path of a kubeconfig. All controllers need
// 374 packages that kube-apiserver does not need, and take a quarter of the whole build. These
// two need 63.
package main

import (
	"context"
	"errors"
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
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

const (
	// By default a namespace takes 15 seconds to go, most of it spent waiting for the
	// controllers' own rate limiter.
	clientQPS   = 1000
	clientBurst = 2000

	// Defaults of kube-controller-manager.
	resync            = 12 * time.Hour
	mapperInterval    = 30 * time.Second
	collectorInterval = 30 * time.Second
	collectorWorkers  = 20
	namespaceInterval = 5 * time.Minute
	namespaceWorkers  = 10
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		klog.ErrorS(err, "Cannot run the controllers")
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = clientQPS, clientBurst
	client, err1 := kubernetes.NewForConfig(config)
	meta, err2 := metadata.NewForConfig(config)
	if err := errors.Join(err1, err2); err != nil {
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
	namespaces := namespace.NewNamespaceController(ctx, client, meta, client.Discovery().ServerPreferredNamespacedResources,
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
