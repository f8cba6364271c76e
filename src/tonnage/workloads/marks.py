"""Labels and annotations by which pods and workloads say which group they are of, and where it wants to stand.

Sources: kai-scheduler/KAI-Scheduler pkg/common/constants and pkg/podgrouper/podgrouper/plugins/constants;
kubernetes-sigs/kueue apis/kueue/v1beta2; volcano-sh/volcano apis pkg/apis/{scheduling,batch};
kubernetes-sigs/scheduler-plugins apis/scheduling/v1alpha1 and its lightweight predecessor; apache/yunikorn-k8shim
pkg/common/constants; kubernetes/kubernetes staging/src/k8s.io/api/batch/v1; kubernetes-sigs/jobset
api/jobset/v1alpha2; kubernetes-sigs/lws api/leaderworkerset/v1; kubeflow/training-operator pkg/apis/kubeflow.org/v1;
kubeflow/trainer pkg/constants; ray-project/kuberay ray-operator/controllers/ray/utils/constant.go.
"""

from __future__ import annotations

KAI_GROUP = "pod-group-name"
KAI_SUBGROUP = "kai.scheduler/subgroup-name"
KAI_MIN_MEMBER = "kai.scheduler/batch-min-member"
KAI_PREEMPTIBILITY = "kai.scheduler/preemptibility"
KAI_PRIORITY = "priorityClassName"
KAI_TOPOLOGY = "kai.scheduler/topology"
KAI_REQUIRED = "kai.scheduler/topology-required-placement"
KAI_PREFERRED = "kai.scheduler/topology-preferred-placement"
KAI_SEGMENT = "kai.scheduler/segment-size"
KAI_SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"

KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
KUEUE_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
KUEUE_SLICE_REQUIRED = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICES = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
KUEUE_PODSET_GROUP = "kueue.x-k8s.io/podset-group-name"

VOLCANO_GROUP = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_JOB = "volcano.sh/job-name"
VOLCANO_TASK = "volcano.sh/task-spec"
VOLCANO_INDEX = "volcano.sh/task-index"

COSCHEDULING_GROUP = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
OLD_GROUP = "pod-group.scheduling.sigs.k8s.io/name"
OLD_MIN = "pod-group.scheduling.sigs.k8s.io/min-available"

YUNIKORN_APP = ("applicationId", "yunikorn.apache.org/app-id")
YUNIKORN_GROUPS = "yunikorn.apache.org/task-groups"
YUNIKORN_GROUP = "yunikorn.apache.org/task-group-name"

JOB_INDEX = "batch.kubernetes.io/job-completion-index"

JOB_SET = "jobset.sigs.k8s.io/jobset-name"
JOB_SET_PART = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_SET_INDEX = "jobset.sigs.k8s.io/job-index"
JOB_SET_KEY = "jobset.sigs.k8s.io/job-key"
JOB_SET_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOB_SET_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"

LWS = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SUBGROUP = "leaderworkerset.sigs.k8s.io/subgroup-index"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"
LWS_KEY = "leaderworkerset.sigs.k8s.io/group-key"
LWS_SUBGROUP_KEY = "leaderworkerset.sigs.k8s.io/subgroup-key"
LWS_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
LWS_SUBGROUP_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"

TRAINING_JOB = "training.kubeflow.org/job-name"
TRAINING_OPERATOR = "training.kubeflow.org/operator-name"
TRAINING_ROLE = "training.kubeflow.org/replica-type"
TRAINING_INDEX = "training.kubeflow.org/replica-index"
TRAINING_JOB_ROLE = "training.kubeflow.org/job-role"
TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"

RAY_CLUSTER = "ray.io/cluster"
RAY_GROUP = "ray.io/group"
RAY_TYPE = "ray.io/node-type"
RAY_HEAD_GROUP = "headgroup"
RAY_FAULT_TOLERANT = "ray.io/ft-enabled"
