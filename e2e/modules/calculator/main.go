// The HPA controller's own replica calculator on standard input: one case a line as JSON, one answer a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"
	"unsafe"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

const namespace = "default"

type container struct {
	Name  string
	Milli *int64
}

type pod struct {
	Name            string
	Phase           string
	Ready           *string
	StartedAgoMs    *int64 `json:"started_ago_ms"`
	ReadyChangedMs  int64  `json:"ready_changed_ago_ms"`
	Deleted         bool
	Requests        []container
	Sidecars        int
	PodLevel        bool   `json:"pod_level"`
	PodRequestMilli *int64 `json:"pod_request"`
}

type sample struct {
	Milli    int64
	AgoMs    int64 `json:"ago_ms"`
	WindowMs int64 `json:"window_ms"`
}

type row struct {
	Kind                string
	Replicas            int32
	Target              int64
	Up, Down            float64
	Resource            string
	Container           string
	CPUInitializationMs int64 `json:"cpu_initialization_ms"`
	InitialReadinessMs  int64 `json:"initial_readiness_delay_ms"`
	Pods                []pod
	Samples             map[string]sample
	Values              []int64
	Value               int64
}

type answer struct {
	Replicas    int32  `json:"replicas"`
	Utilization *int32 `json:"utilization"`
	Milli       int64  `json:"milli"`
	Error       string `json:"error"`
}

// source answers what a row says, instead of the metrics APIs.
type source struct {
	row row
	now time.Time
}

func (s source) perPod() metrics.PodMetricsInfo {
	found := metrics.PodMetricsInfo{}
	for name, one := range s.row.Samples {
		found[name] = metrics.PodMetric{
			Timestamp: s.now.Add(-time.Duration(one.AgoMs) * time.Millisecond),
			Window:    time.Duration(one.WindowMs) * time.Millisecond,
			Value:     one.Milli,
		}
	}
	return found
}

func (s source) GetResourceMetric(context.Context, v1.ResourceName, string, labels.Selector, string) (metrics.PodMetricsInfo, time.Time, error) {
	if s.row.Samples == nil {
		return nil, time.Time{}, errors.New("no metrics returned from resource metrics API")
	}
	return s.perPod(), s.now, nil
}

func (s source) GetRawMetric(string, string, labels.Selector, labels.Selector) (metrics.PodMetricsInfo, time.Time, error) {
	if s.row.Samples == nil {
		return nil, time.Time{}, errors.New("no metrics returned from custom metrics API")
	}
	return s.perPod(), s.now, nil
}

func (s source) GetObjectMetric(string, string, *autoscaling.CrossVersionObjectReference, labels.Selector) (int64, time.Time, error) {
	return s.row.Value, s.now, nil
}

func (s source) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	if len(s.row.Values) == 0 {
		return nil, time.Time{}, errors.New("no metrics returned from external metrics API")
	}
	return s.row.Values, s.now, nil
}

func requests(milli *int64, name string) v1.ResourceRequirements {
	if milli == nil {
		return v1.ResourceRequirements{}
	}
	return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceName(name): *resource.NewMilliQuantity(*milli, resource.DecimalSI)}}
}

func (p pod) object(resourceName string, now time.Time) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	made := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: namespace, Labels: map[string]string{"app": "a"}}}
	made.Status.Phase = v1.PodPhase(p.Phase)
	for index, one := range p.Requests {
		made1 := v1.Container{Name: one.Name, Resources: requests(one.Milli, resourceName)}
		if index >= len(p.Requests)-p.Sidecars {
			made1.RestartPolicy = &always
			made.Spec.InitContainers = append(made.Spec.InitContainers, made1)
		} else {
			made.Spec.Containers = append(made.Spec.Containers, made1)
		}
	}
	if p.PodLevel {
		whole := requests(p.PodRequestMilli, resourceName)
		if p.PodRequestMilli == nil { // the pod as a whole asks for something else
			whole = requests(new(int64), "hugepages-2Mi")
		}
		made.Spec.Resources = &whole
	}
	if p.Deleted {
		made.DeletionTimestamp = &metav1.Time{Time: now}
	}
	if p.StartedAgoMs != nil {
		made.Status.StartTime = &metav1.Time{Time: now.Add(-time.Duration(*p.StartedAgoMs) * time.Millisecond)}
	}
	if p.Ready != nil {
		changed := metav1.Time{Time: now.Add(-time.Duration(p.ReadyChangedMs) * time.Millisecond)}
		made.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionStatus(*p.Ready), LastTransitionTime: changed}}
	}
	return made
}

// tolerances has fields of its own package only.
func tolerances(up, down float64) podautoscaler.Tolerances {
	made := podautoscaler.Tolerances{}
	for name, value := range map[string]float64{"scaleUp": up, "scaleDown": down} {
		field := reflect.ValueOf(&made).Elem().FieldByName(name)
		reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().SetFloat(value)
	}
	return made
}

func calculate(r row) answer {
	now := time.Now()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, one := range r.Pods {
		if err := indexer.Add(one.object(r.Resource, now)); err != nil {
			panic(err)
		}
	}
	cpuInitialization := time.Duration(r.CPUInitializationMs) * time.Millisecond
	delay := time.Duration(r.InitialReadinessMs) * time.Millisecond
	calculator := podautoscaler.NewReplicaCalculator(source{r, now}, corelisters.NewPodLister(indexer), cpuInitialization, delay)
	selector := labels.SelectorFromSet(labels.Set{"app": "a"})
	band, ctx := tolerances(r.Up, r.Down), context.Background()
	object := &autoscaling.CrossVersionObjectReference{Kind: "Service", Name: "s"}
	var found answer
	var err error
	switch r.Kind {
	case "resource":
		var percent int32
		found.Replicas, percent, found.Milli, _, err = calculator.GetResourceReplicas(ctx, r.Replicas, int32(r.Target), v1.ResourceName(r.Resource), band, namespace, selector, r.Container)
		found.Utilization = &percent
	case "raw_resource":
		found.Replicas, found.Milli, _, err = calculator.GetRawResourceReplicas(ctx, r.Replicas, r.Target, v1.ResourceName(r.Resource), band, namespace, selector, r.Container)
	case "pods":
		found.Replicas, found.Milli, _, err = calculator.GetMetricReplicas(r.Replicas, r.Target, "metric", band, namespace, selector, labels.Everything())
	case "object":
		found.Replicas, found.Milli, _, err = calculator.GetObjectMetricReplicas(r.Replicas, r.Target, "metric", band, namespace, object, selector, labels.Everything())
	case "object_per_pod":
		found.Replicas, found.Milli, _, err = calculator.GetObjectPerPodMetricReplicas(r.Replicas, r.Target, "metric", band, namespace, object, labels.Everything())
	case "external":
		found.Replicas, found.Milli, _, err = calculator.GetExternalMetricReplicas(r.Replicas, r.Target, "metric", band, namespace, &metav1.LabelSelector{}, selector)
	case "external_per_pod":
		found.Replicas, found.Milli, _, err = calculator.GetExternalPerPodMetricReplicas(r.Replicas, r.Target, "metric", band, namespace, &metav1.LabelSelector{})
	default:
		panic("no such kind: " + r.Kind)
	}
	if err != nil {
		found.Error = err.Error()
	}
	return found
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	in.Buffer(nil, 1<<20)
	written := json.NewEncoder(out)
	for in.Scan() {
		var r row
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := written.Encode(calculate(r)); err != nil {
			panic(err)
		}
	}
	if err := in.Err(); err != nil {
		panic(err)
	}
	out.Flush()
}
