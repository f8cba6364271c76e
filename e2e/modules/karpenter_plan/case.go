package main

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Case is a cluster at the moment of planning.
type Case struct {
	ID string `json:"id"`
	// WellKnown are label keys of the cloud provider that a pod may ask for without its NodePool naming them.
	WellKnown []string `json:"wellKnown"`
	// ReservationID is the label key that names an offering's capacity reservation.
	ReservationID string `json:"reservationId"`
	Types         []Type `json:"types"`
	// TypesOf gives NodePools types of their own: the others get Types.
	TypesOf    map[string][]Type `json:"typesOf"`
	NodePools  []*v1.NodePool    `json:"nodePools"`
	Pods       []*corev1.Pod     `json:"pods"`
	DaemonPods []*corev1.Pod     `json:"daemonPods"`
	Nodes      []Machine         `json:"nodes"`
	// Objects are further ones that planning looks up: Namespace, PersistentVolumeClaim, PersistentVolume, StorageClass, CSINode.
	Objects           []json.RawMessage `json:"objects"`
	IgnorePreferences bool              `json:"ignorePreferences"`
	BestEffort        bool              `json:"bestEffort"`
	ReservedFallback  bool              `json:"reservedFallback"`
	MaxInstanceTypes  int               `json:"maxInstanceTypes"`
	// Disruption asks for a command of the disruption controller instead of a plan.
	Disruption *Disruption `json:"disruption"`
}

// Type is an instance type. A label listed in Absent is one that it does not have.
type Type struct {
	Name        string              `json:"name"`
	Labels      map[string][]string `json:"labels"`
	Absent      []string            `json:"absent"`
	Capacity    corev1.ResourceList `json:"capacity"`
	Allocatable corev1.ResourceList `json:"allocatable"`
	Offerings   []Offering          `json:"offerings"`
}

// Offering is one way to have an instance type.
type Offering struct {
	Labels       map[string][]string `json:"labels"`
	Absent       []string            `json:"absent"`
	Price        float64             `json:"price"`
	Available    bool                `json:"available"`
	Reservations int                 `json:"reservations"`
}

// Machine is a Node with its NodeClaim; either may be missing.
type Machine struct {
	Node      *corev1.Node  `json:"node"`
	NodeClaim *v1.NodeClaim `json:"nodeClaim"`
	Deleting  bool          `json:"deleting"`
	// Nominated, Drifted (what the cloud says of it) and DriftedAt matter for disruption only.
	Nominated bool        `json:"nominated"`
	Drifted   string      `json:"drifted"`
	DriftedAt metav1.Time `json:"driftedAt"`
}

// Answer is what Karpenter would do.
type Answer struct {
	ID          string              `json:"id"`
	Claims      []Claim             `json:"claims"`
	Nominations map[string][]string `json:"nominations"`
	// Refused names, for each pod that is left, how the refusals of the NodePools begin.
	Refused map[string][]string `json:"refused"`
	Failed  string              `json:"failed,omitempty"`
	Ordered *Ordered            `json:"ordered,omitempty"`
}

// Claim is a planned NodeClaim, its pods in the order in which they joined.
type Claim struct {
	NodePool     string                                    `json:"nodePool"`
	Pods         []string                                  `json:"pods"`
	Types        []string                                  `json:"types"`
	Requests     map[string]string                         `json:"requests"`
	Requirements []v1.NodeSelectorRequirementWithMinValues `json:"requirements"`
}
